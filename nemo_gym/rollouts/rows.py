"""Reading tasks from JSON lines, one at a time, however large the file is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from nemo_gym.results.blocks import lines_of, offsets_of, read_blocks
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
    for block in object_blocks(path, end):
        yield from zip(block.offsets(), block.rows, strict=True)


class RowBlock(NamedTuple):
    """Objects on lines that follow one another, the first of which begins at `begin` in the file."""

    begin: int
    text: bytes
    rows: list[Row]

    def offsets(self) -> list[int]:
        """Where each line begins in the file."""
        return offsets_of(lines_of(self.text), self.begin)[:-1]


def object_blocks(path: Path, end: int | None = None) -> Iterator[RowBlock]:
    """The same, many lines at a time."""
    if not path.exists():
        return
    begin, number = 0, 1
    with path.open("rb") as file:
        for text, count, rows in read_blocks(file):
            if rows is not None and (end is None or begin + len(text) <= end):
                yield RowBlock(begin, text, rows)
            else:
                yield from _one_by_one(text, path, number, begin, end)
            begin, number = begin + len(text), number + count
            if end is not None and begin >= end:
                return


def _one_by_one(text: bytes, path: Path, first: int, begin: int, end: int | None) -> Iterator[RowBlock]:
    for number, line in enumerate(lines_of(text), start=first):
        if end is not None and begin >= end:
            return
        if not line.isspace():
            yield RowBlock(begin, line, [loads_jsonl_line(line, path, number)])
        begin += len(line)


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
