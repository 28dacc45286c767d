"""Lines of JSON objects, read one at a time; written so that a reader never sees half a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import orjson

from nemo_gym.config.errors import ConfigPathNotFoundError
from nemo_gym.results.errors import ResultsFileError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

T = TypeVar("T")


class Line(NamedTuple):
    """A JSON object with its place: `number` from 1, `offset` in bytes."""

    source: JsonLines
    number: int
    offset: int
    record: dict[str, Any]

    def read(self, what: Callable[[dict[str, Any]], T]) -> T:
        """`what(record)`, with a ValueError of it told as an error of this line."""
        try:
            return what(self.record)
        except ValueError as error:
            raise self.source.error(self.number, str(error)) from None


@dataclass(frozen=True)
class JsonLines:
    """A file of JSON objects; blank lines and a byte order mark are skipped. `flag` is the option it was given by."""

    path: Path
    flag: str

    def __iter__(self) -> Iterator[Line]:
        with self._open() as file:
            begin = len(_BYTE_ORDER_MARK) if file.peek(3).startswith(_BYTE_ORDER_MARK) else 0
            file.seek(begin)
            for number, line in enumerate(file, start=1):
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError:
                    record = None
                if type(record) is dict:
                    yield Line(self, number, begin, record)
                elif not line.isspace():
                    yield Line(self, number, begin, self._parse(line, number))
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
