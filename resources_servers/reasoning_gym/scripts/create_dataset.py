"""Writes rows of a data set of reasoning-gym: `python create_dataset.py --task mini_sudoku --size 100 --output F`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, write_rows
from nemo_gym.errors import GymError

FORMAT = "Give your final answer between <answer> and </answer>."


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Generate rows of a data set of reasoning-gym.")
    parser.add_argument("--task", required=True, help="the data set, such as mini_sudoku")
    parser.add_argument("--size", type=int, default=500, help="how many rows (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=42, help="the same rows for the same seed (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="where they are written, as JSON lines")
    options = parser.parse_args(arguments)
    try:
        count = write_rows(options.output, rows(options.task, options.size, options.seed))
    except GymError as error:
        parser.exit(error.exit_code, f"Error: {error}\n")
    print(f"Written: {options.output} ({count} rows)")


def rows(task: str, size: int, seed: int) -> Iterator[dict[str, Any]]:
    """The rows of a data set. Raises PreparationError without the library, or for a data set that it hasn't."""
    if size < 1:
        raise PreparationError(f"--size is {size}: there must be at least one row.")
    try:
        import reasoning_gym  # type: ignore[import-not-found]
    except ImportError as error:
        raise PreparationError("This needs the package reasoning-gym: `uv pip install reasoning-gym`.") from error
    try:
        entries = reasoning_gym.create_dataset(task, size=size, seed=seed)
    except Exception as error:
        raise PreparationError(f"There is no data set {task!r} of that size: {error}") from error
    return (row(entry) for entry in entries)


def row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as a row: what JSON doesn't know becomes a text."""
    prompt = f"{entry['question'].rstrip()}\n\n{FORMAT}"
    task = {name: entry[name] for name in ("question", "answer", "metadata")}
    plain: dict[str, Any] = json.loads(json.dumps(task, default=str))
    return {"responses_create_params": {"input": [{"role": "user", "content": prompt}]}, **plain}


if __name__ == "__main__":
    main()
