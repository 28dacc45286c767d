"""Reading tasks from JSON lines, one at a time, however large the file is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from nemo_gym.rollouts.errors import RowError

Row = dict[str, Any]

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class InputRow:
    """One task as it was read; `text` is what makes two lines the same task, line ends aside."""

    path: Path
    number: int
    text: bytes
    fields: Row

    @property
    def place(self) -> str:
        return f"{self.path}, line {self.number}"


def read_rows(path: Path, limit: int | None = None) -> Iterator[InputRow]:
    """The rows of a file in order, at most `limit` of them when it is given and not 0.

    Blank lines, a byte order mark and CRLF line ends are fine. Raises RowError for a line that isn't a JSON object and
    for a file without any row.
    """
    found = False
    for row in islice(_rows(path), limit or None):
        found = True
        yield row
    if not found:
        raise RowError(f"{path} has no rows: write one JSON object a line, each with `responses_create_params`.")


def _rows(path: Path) -> Iterator[InputRow]:
    with open_input(path) as lines:
        for number, line in enumerate(lines, start=1):
            text = (line.removeprefix(_BOM) if number == 1 else line).strip()
            if text:
                yield InputRow(path, number, text, loads_jsonl_line(text, path, number))


def objects_at(path: Path, end: int | None = None) -> Iterator[tuple[int, Row]]:
    """The objects of a JSON lines file that Gym wrote, with the offset each line begins at; none without the file.

    Lines that begin at `end` or later are left unread. Raises RowError naming the line that can't be read.
    """
    if not path.exists():
        return
    offset = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if end is not None and offset >= end:
                return
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                value = None
            if type(value) is dict:
                yield offset, value
            elif not line.isspace():
                yield offset, loads_jsonl_line(line, path, number)
            offset += len(line)


def objects(path: Path, end: int | None = None) -> Iterator[Row]:
    """The same without offsets."""
    return (row for _, row in objects_at(path, end))


def object_at(file: BinaryIO, offset: int, path: Path) -> Row:
    """The object on the line that begins at an offset."""
    file.seek(offset)
    return loads_jsonl_line(file.readline(), path, 0)


def open_input(path: Path) -> Any:
    """The file, opened as bytes. Raises RowError that says why it can't be read."""
    try:
        return path.open("rb")
    except OSError as error:
        raise RowError(f"{path} can't be read ({error.strerror}): check the path given to --input.") from error


def loads_jsonl_line(line: str | bytes, path: str | Path, line_number: int) -> Row:
    """The object on one line. Raises RowError naming file, line and column for anything else."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RowError(
            f"Malformed JSON in '{path}' at line {line_number}, column {error.colno}: {error.msg}. "
            "Every line must be one whole JSON object."
        ) from error
    if not isinstance(value, dict):
        raise RowError(
            f"'{path}' line {line_number} is {_kind(value)}, not an object: every line must be one JSON object."
        )
    return value


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names[type(value)]
