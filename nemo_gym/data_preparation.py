"""What the scripts that write an environment's rows share: published data in, JSON lines out, and their options."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from nemo_gym.config.replacing import replacing
from nemo_gym.errors import GymError

__all__ = ["PreparationError", "fetch_rows", "hub_rows", "run_preparation", "write_rows"]

Row: TypeAlias = dict[str, Any]


class PreparationError(GymError):
    """Rows that can't be fetched or can't be used."""


def hub_rows(repo_id: str, *, split: str, config: str | None = None) -> Iterator[Row]:
    """The rows of a data set on the Hugging Face hub, in order, streamed.

    Raises PreparationError when the `datasets` package is missing or the data set can't be read.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise PreparationError(
            f"Reading {repo_id} needs the package `datasets`: install it with `uv pip install datasets`."
        ) from error
    try:
        for row in load_dataset(repo_id, config, split=split, streaming=True):
            yield dict(row)
    except Exception as error:
        raise PreparationError(f"{repo_id} (split {split}) can't be read: {error}") from error


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], *, limit: int | None = None) -> int:
    """Write rows as JSON lines, all of them or nothing, and return how many.

    Raises PreparationError when there are none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with replacing(path) as file:
        for row in islice(rows, limit):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
        if not count:
            raise PreparationError(f"There are no rows to write to {path}.")
    return count


def fetch_rows(
    repo_id: str, as_row: Callable[[Row, int], Row], path: Path, *, split: str, limit: int | None = None
) -> Path:
    """Write what `as_row(published, number)` makes of each row of a split, numbered from 1; returns `path`.

    Raises PreparationError when the split can't be read, or from `as_row` for a row that can't be used.
    """
    rows = (as_row(published, number) for number, published in enumerate(hub_rows(repo_id, split=split), 1))
    write_rows(path, rows, limit=limit)
    return path


def run_preparation(prepare: Callable[..., Path], *, description: str, splits: Iterable[str] = ("train",)) -> None:
    """The command line of a `prepare.py`: `--split`, `--output` and `--limit` become keyword arguments of `prepare`."""
    names = tuple(splits)
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--split", choices=names, default=names[0], help="which rows (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=None, help="where they are written (default: data/SPLIT.jsonl)")
    parser.add_argument("--limit", "--size", type=int, default=None, help="write only the first so many")
    options = parser.parse_args()
    try:
        written = prepare(split=options.split, output=options.output, limit=options.limit)
    except GymError as error:
        parser.exit(error.exit_code, f"Error: {error}\n")
    print(f"Written: {written}")
