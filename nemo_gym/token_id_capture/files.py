"""Files that several processes append to and read, by rollout."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from nemo_gym.token_id_capture.errors import InvalidRolloutIdError

_Result = TypeVar("_Result")
_NAME = re.compile(r"[A-Za-z0-9._-]+")

# Our own threads: on the default executor file work would wait behind verifiers.
_EXECUTOR = ThreadPoolExecutor(max_workers=4, thread_name_prefix="token-capture")


async def in_file_thread(function: Callable[..., _Result], *args: object) -> _Result:
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, function, *args)


def require_rollout_id(rollout_id: str) -> str:
    """The id itself. Raises InvalidRolloutIdError when it can't be part of a file's name."""
    if not _NAME.fullmatch(rollout_id):
        raise InvalidRolloutIdError(
            f"Rollout id {rollout_id!r} can't name a file: it may hold only letters, digits, '.', '_' and '-'."
        )
    return rollout_id


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a file, made if it isn't there, among all threads and processes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def append_line(path: Path, line: bytes, *, durable: bool = True) -> int:
    """Add a line to a file, on the disk before this returns if `durable`; returns the offset it begins at.

    A torn line that a killed writer left is cut off first; one that can't be written whole is taken back.
    """
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        offset = _cut_torn_tail(descriptor)
        try:
            _write_all(descriptor, line + b"\n", offset)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, offset)
            raise
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if durable and is_new:
        sync_folder(path.parent)
    return offset


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _cut_torn_tail(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    end, block = size, 1 << 16
    while end > 0:
        start = max(0, end - block)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
    return end


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(offset, line without its end) of the whole lines from an offset on; nothing when there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield offset, line[:-1]
            offset += len(line)


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in place of a file at once, on the disk before this returns."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{id(data)}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        _write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
