"""Whether a file of records is what the journal says, found out without parsing the records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import orjson

from nemo_gym.config.keys import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.rollouts.keyset import RolloutKey
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

    def follow(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Take in the next entries of records in the file, each with its key as integers."""
        if self._file is not None and not self._go_on(self._file.read, entries):
            self._give_up()

    def _go_on(self, read: Callable[[int], bytes], entries: Iterable[Mapping[str, Any]]) -> bool:
        end, size = self._end, self._size
        for entry in entries:
            length = entry.get("length")
            if entry.get("offset") != end or type(length) is not int or not 1 <= length <= size:
                return False
            line, key = read(length), (entry["task"], entry["repeat"])
            end += length
            if (crc32(line) != entry.get("crc") or _KEY % key not in line) and not _is_record_of(key, line, length):
                return False
        self._end = end
        return True

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


def _is_record_of(key: RolloutKey, line: bytes, length: int) -> bool:
    """Whether a line is the record of a rollout, as it is parsed."""
    if line.find(b"\n") != length - 1:
        return False
    with suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        return type(record) is dict and key_of(record) == key
    return False
