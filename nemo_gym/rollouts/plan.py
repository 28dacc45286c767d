"""The plan of a run, as a file: one line per rollout, in the order they are dispatched."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import orjson

from nemo_gym.config.keys import ROLLOUT_INDEX_KEY_NAME
from nemo_gym.rollouts.errors import OutputError, RowError
from nemo_gym.rollouts.rows import Row


@dataclass(frozen=True)
class PlanFile:
    """A written plan: how many rollouts, and the digest of its bytes."""

    path: Path
    rollouts: int
    digest: str


@contextmanager
def new_plan(path: Path, rows: Iterable[Row], *, interleave: bool) -> Iterator[PlanFile]:
    """Write a plan beside `path` and give it that name when the block ends well.

    The old file of that name is untouched until then; a block that raises leaves nothing behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            count, digest = _write(temporary, rows, interleave=interleave)
        except OSError as error:
            raise OutputError(f"{path} can't be written ({error.strerror}): choose another --output.") from error
        yield PlanFile(path, count, digest)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _line(row: Row, number: int) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS) + b"\n"
    except orjson.JSONEncodeError as error:
        raise RowError(
            f"Rollout {number} of the plan can't be written as JSON ({error}): its row is nested too deeply, or holds "
            "what JSON has no form for. Mend or leave out that row."
        ) from None


def _write(path: Path, rows: Iterable[Row], *, interleave: bool) -> tuple[int, str]:
    offsets: dict[int, array[int]] = {}
    with path.open("w+b") as file:
        count = 0
        for row in rows:
            count += 1
            if interleave:
                offsets.setdefault(row[ROLLOUT_INDEX_KEY_NAME], array("Q")).append(file.tell())
            file.write(_line(row, count))
        if interleave:
            _reorder(file, path, (offset for repeat in sorted(offsets) for offset in offsets[repeat]))
        file.flush()
        os.fsync(file.fileno())
    return count, _digest(path)


def _reorder(file: BinaryIO, path: Path, offsets: Iterable[int]) -> None:
    ordered = path.with_name(path.name + ".ordered")
    try:
        with ordered.open("wb") as target:
            for offset in offsets:
                file.seek(offset)
                target.write(file.readline())
            target.flush()
            os.fsync(target.fileno())
        ordered.replace(path)
    finally:
        ordered.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
