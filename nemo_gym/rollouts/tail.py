"""The last line of a file that somebody may have stopped writing in the middle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import orjson

_CHUNK = 1 << 20


def repair_tail(path: Path) -> int:
    """Make the file end with a whole line; returns how many bytes of a torn one were cut off.

    A last line that only lacks its line end gets it.
    """
    with path.open("r+b") as file:
        start, last = _unended(file)
        if not last:
            return 0
        if _is_json(last):
            file.write(b"\n")
            return 0
        file.truncate(start)
        return len(last)


def end_of_whole_lines(path: Path) -> int | None:
    """Where a torn last line begins; None when there is no such line, or no file. The file stays as it is."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        start, last = _unended(file)
    return start if last and not _is_json(last) else None


def _unended(file: BinaryIO) -> tuple[int, bytes]:
    """Where the text after the last line end begins, and that text; the file is left standing at its end."""
    end = file.seek(0, os.SEEK_END)
    start = _after_last_newline(file, end)
    file.seek(start)
    return start, file.read(end - start)


def _after_last_newline(file: BinaryIO, end: int) -> int:
    position = end
    while position:
        size = min(_CHUNK, position)
        position -= size
        file.seek(position)
        found = file.read(size).rfind(b"\n")
        if found >= 0:
            return position + found + 1
    return 0


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
