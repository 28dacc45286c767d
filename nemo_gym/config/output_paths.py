"""Names of the files beside a rollouts file."""

from pathlib import Path


def failures_path_for(output_fpath: Path) -> Path:
    """`x.jsonl` → `x_failures.jsonl`."""
    return _beside(output_fpath, "_failures.jsonl")


def materialized_path_for(output_fpath: Path) -> Path:
    """`x.jsonl` → `x_materialized_inputs.jsonl`."""
    return _beside(output_fpath, "_materialized_inputs.jsonl")


def aggregate_metrics_path_for(output_fpath: Path) -> Path:
    """`x.jsonl` → `x_aggregate_metrics.json`."""
    return _beside(output_fpath, "_aggregate_metrics.json")


def _beside(path: Path, suffix: str) -> Path:
    return Path(path).with_name(Path(path).stem + suffix)
