"""Writes the published puzzles' rows: `python prepare.py --split train`."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from nemo_gym.data_preparation import PreparationError, run_preparation, write_rows

ARCHIVE = "https://github.com/fchollet/ARC-AGI/archive/refs/heads/master.zip"
DATA = Path(__file__).parent / "data"
FOLDERS = {"train": "training", "validation": "evaluation"}
_SECONDS = 120


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch the puzzles of one split, write a row for each test of each, and return the file.

    Raises PreparationError naming what can't be fetched or used.
    """
    path = output or DATA / f"{split}.jsonl"
    write_rows(path, rows(archive(), split), limit=limit)
    return path


def archive() -> bytes:
    """The repository with all puzzles, zipped. Raises PreparationError."""
    from urllib.request import urlopen

    try:
        with urlopen(ARCHIVE, timeout=_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except OSError as error:
        raise PreparationError(f"{ARCHIVE} can't be fetched: {error}") from error


def rows(zipped: bytes, split: str) -> Iterator[dict[str, Any]]:
    """A row for each test of each puzzle of a split, by the puzzles' names. Raises PreparationError."""
    from resources_servers.arc_agi.prompts import row

    try:
        with zipfile.ZipFile(io.BytesIO(zipped)) as files:
            puzzles = {
                PurePosixPath(name): files.read(name) for name in sorted(files.namelist()) if _is_of(name, split)
            }
    except zipfile.BadZipFile as error:
        raise PreparationError(f"{ARCHIVE} is no zip file: {error}") from error
    for path, content in puzzles.items():
        try:
            puzzle = json.loads(content)
            train, tests = puzzle["train"], puzzle["test"]
            found = [row(train, test, f"{path.stem}-{number}") for number, test in enumerate(tests)]
        except (ValueError, KeyError, TypeError) as error:
            raise PreparationError(f"{path.name} is no puzzle with train and test grids: {error!r}") from error
        yield from found


def _is_of(name: str, split: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".json" and path.parent.name == FOLDERS[split] and path.parent.parent.name == "data"


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the puzzles of ARC-AGI.", splits=tuple(FOLDERS))
