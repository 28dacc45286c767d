"""Whether a resources server ships the example data that it must."""

import json
from pathlib import Path

EXAMPLES = 5


def example_data_problems(directory: Path) -> list[str]:
    """What is wrong with `data/` of a resources server, each with the command that mends it; empty when nothing is."""
    name, data = directory.name, directory / "data"
    problems = []
    if _line_count(data / "example.jsonl") != EXAMPLES:
        problems.append(f"{data / 'example.jsonl'} must hold exactly {EXAMPLES} example rows.")
    if _counted_examples(data / "example_metrics.json") != EXAMPLES:
        problems.append(
            f"{data / 'example_metrics.json'} must count {EXAMPLES} examples: `gym dataset collate "
            f"--resources-server {name} --mode example_validation --output-dir {data}` writes it."
        )
    problems += [f"{path} is left from a collation: settle the conflict and delete it." for path in _conflicts(data)]
    if _line_count(data / "example_rollouts.jsonl") != EXAMPLES:
        problems.append(
            f"{data / 'example_rollouts.jsonl'} must hold exactly {EXAMPLES} rollouts: `gym eval run "
            f"--resources-server {name} --split example --output {data / 'example_rollouts.jsonl'}` writes it."
        )
    return problems


def _line_count(path: Path) -> int | None:
    try:
        with path.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    except OSError:
        return None


def _counted_examples(path: Path) -> object:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return metrics.get("Number of examples") if isinstance(metrics, dict) else None


def _conflicts(data: Path) -> list[Path]:
    return sorted(data.glob("*conflict*")) if data.is_dir() else []
