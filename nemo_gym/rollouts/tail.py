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
        end = file.seek(0, os.SEEK_END)
        start = _after_last_newline(file, end)
        if start == end:
            return 0
        file.seek(start)
        last = file.read(end - start)
        if _is_json(last):
            file.write(b"\n")
            return 0
        file.truncate(start)
        return end - start


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
