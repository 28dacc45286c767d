"""Whether a file of records is what the journal says, found out without parsing the records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import orjson

from nemo_gym.config.keys import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.rollouts.records import key_of

_BUFFER = 1 << 20
_KEY = f'"{TASK_INDEX_KEY_NAME}":%d,"{ROLLOUT_INDEX_KEY_NAME}":%d,'.encode()


class Tiling:
    """Follows the entries of records in the order of the journal, and the file beside it.

    The entries tile the file when each says where the one before it ended, every such piece is the record with the
    entry's key and check sum, and nothing is left over. Then the journal knows every record of the file.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO | None = None
        self._end = self._size = 0
        with suppress(FileNotFoundError):
            self._file = path.open("rb", buffering=_BUFFER)
            self._size = os.fstat(self._file.fileno()).st_size

    def follow(self, entry: Mapping[str, Any]) -> None:
        """Take in the next entry of a record in the file."""
        if self._file is None:
            return
        length = entry.get("length")
        if entry.get("offset") != self._end or type(length) is not int or not 1 <= length <= self._size:
            self._give_up()
            return
        line = self._file.read(length)
        self._end += length
        if not _is_record(line, length, entry):
            self._give_up()

    def close(self) -> bool:
        """Whether the entries tile the file."""
        if self._file is None:
            return False
        holds = not self._file.read(1)
        self._give_up()
        return holds

    def _give_up(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_record(line: bytes, length: int, entry: Mapping[str, Any]) -> bool:
    """Whether a line is the record of an entry: as it was written, or (entries without a check sum) as it is parsed."""
    task, repeat = entry.get("task"), entry.get("repeat")
    if type(task) is not int or type(repeat) is not int:
        return False
    if crc32(line) == entry.get("crc") and _KEY % (task, repeat) in line:
        return True
    if line.find(b"\n") != length - 1:
        return False
    with suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        return type(record) is dict and key_of(record) == (task, repeat)
    return False
