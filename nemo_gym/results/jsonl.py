"""Lines of JSON objects, read one at a time; written so that a reader never sees half a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import count, repeat
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import orjson

from nemo_gym.config.errors import ConfigPathNotFoundError
from nemo_gym.results.blocks import lines_of, offsets_of, read_blocks
from nemo_gym.results.errors import ResultsFileError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

T = TypeVar("T")


class Line(NamedTuple):
    """A JSON object with its place: `number` from 1."""

    source: JsonLines
    number: int
    record: dict[str, Any]


class Records(NamedTuple):
    """JSON objects on lines that follow one another: the number of the first line, and where it begins in the file."""

    source: JsonLines
    first: int
    begin: int
    text: bytes
    records: list[dict[str, Any]]

    def offsets(self) -> list[int]:
        """Where each line begins in the file."""
        return offsets_of(lines_of(self.text), self.begin)[:-1]

    def read(self, what: Callable[[dict[str, Any]], T]) -> list[T]:
        """`what(record)` of each, with a ValueError of it told as an error of its line."""
        found: list[T] = []
        try:
            found.extend(map(what, self.records))
        except ValueError as error:
            raise self.source.error(self.first + len(found), str(error)) from None
        return found


@dataclass(frozen=True)
class JsonLines:
    """A file of JSON objects; blank lines and a byte order mark are skipped. `flag` is the option it was given by."""

    path: Path
    flag: str

    def __iter__(self) -> Iterator[Line]:
        for _, first, _, _, records in self.blocks():
            yield from map(Line, repeat(self), count(first), records)

    def blocks(self) -> Iterator[Records]:
        """The objects of many lines at a time, in order."""
        with self._open() as file:
            number, begin = 1, len(_BYTE_ORDER_MARK) if file.peek(3).startswith(_BYTE_ORDER_MARK) else 0
            file.seek(begin)
            for text, lines, records in read_blocks(file):
                if records is None:
                    yield from self._one_by_one(text, number, begin)
                else:
                    yield Records(self, number, begin, text, records)
                number, begin = number + lines, begin + len(text)

    def _one_by_one(self, text: bytes, first: int, begin: int) -> Iterator[Records]:
        for number, line in enumerate(lines_of(text), start=first):
            if not line.isspace():
                yield Records(self, number, begin, line, [self._parse(line, number)])
            begin += len(line)

    @contextmanager
    def random_access(self) -> Iterator[Callable[[int], dict[str, Any]]]:
        """A function that reads the record at an offset."""
        with self._open() as file:

            def record_at(offset: int) -> dict[str, Any]:
                file.seek(offset)
                record: dict[str, Any] = orjson.loads(file.readline())
                return record

            yield record_at

    def error(self, number: int, problem: str) -> ResultsFileError:
        return ResultsFileError(f"{self.path}:{number} ({self.flag}): {problem}")

    def _open(self) -> BufferedReader:
        try:
            return self.path.open("rb")
        except FileNotFoundError:
            raise ConfigPathNotFoundError(f"{self.flag}: there is no file {self.path}") from None
        except OSError as error:
            raise ResultsFileError(f"{self.flag}: can't read {self.path}: {error.strerror}") from None

    def _parse(self, text: bytes, number: int) -> dict[str, Any]:
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise self.error(number, f"malformed JSON: {error}") from None
        if not isinstance(record, dict):
            raise self.error(number, f"expected a JSON object, found {type(record).__name__}")
        return record


def write_lines(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    with replacing(path) as file:
        for entry in entries:
            file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))


def write_json(path: Path, content: object) -> None:
    with replacing(path) as file:
        file.write(orjson.dumps(content))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once it is complete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise ResultsFileError(f"can't write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
