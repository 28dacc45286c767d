"""Whether a resources server ships the example data that it must."""

import json
from pathlib import Path
from typing import Any

EXAMPLES = 5


def example_data_problems(directory: Path) -> list[str]:
    """What is wrong with `data/` of a resources server, each with the command that mends it; empty when nothing is."""
    name, data = _selector(directory), directory / "data"
    problems = []
    if _line_count(data / "example.jsonl") != EXAMPLES:
        problems.append(f"{data / 'example.jsonl'} must hold exactly {EXAMPLES} example rows.")
    if _counted_examples(data / "example_metrics.json") != EXAMPLES:
        problems.append(_metrics_problem(data / "example_metrics.json", name))
    problems += [f"{path} is left from a collation: settle the conflict and delete it." for path in _conflicts(data)]
    if _line_count(data / "example_rollouts.jsonl") != EXAMPLES:
        problems.append(
            f"{data / 'example_rollouts.jsonl'} must hold exactly {EXAMPLES} rollouts: `gym eval run "
            f"--resources-server {name} --split example --output {data / 'example_rollouts.jsonl'}` writes it."
        )
    return problems


def _selector(directory: Path) -> str:
    """What `--resources-server` calls a server: its folder, with a flavor where no config has the folder's name."""
    stems = sorted(path.stem for path in directory.glob("configs/*.yaml"))
    return directory.name if directory.name in stems or not stems else f"{directory.name}/{stems[0]}"


def _metrics_problem(metrics: Path, name: str) -> str:
    """Collating writes the metrics beside the rows; its own output must go elsewhere, for it holds rows again."""
    remains = " +overwrite_metrics_conflicts=true" if _metrics_in(metrics) is not None else ""
    unreadable = "delete it; then " if metrics.exists() and not remains else ""
    return (
        f"{metrics} must count {EXAMPLES} examples: {unreadable}`gym dataset collate --resources-server {name} --mode "
        f"example_validation --output-dir results/{name}{remains}` writes it."
    )


def _line_count(path: Path) -> int | None:
    try:
        with path.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    except OSError:
        return None


def _counted_examples(path: Path) -> object:
    return (_metrics_in(path) or {}).get("Number of examples")


def _metrics_in(path: Path) -> dict[str, Any] | None:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return metrics if isinstance(metrics, dict) else None


def _conflicts(data: Path) -> list[Path]:
    return sorted(data.glob("*conflict*")) if data.is_dir() else []
