"""Lines appended to files that several processes write, durable when the call returns."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

_NEWLINE = b"\n"


@dataclass(eq=False)
class Line:
    """A line to append; `shorter` makes the one that is written instead where the file is full."""

    text: bytes
    shorter: Callable[[], bytes]
    is_written: bool = False
    error: OSError | None = None


@dataclass(eq=False)
class _Queue:
    pending: list[Line] = field(default_factory=list)
    writing: Lock = field(default_factory=Lock)
    users: int = 0


class DurableAppender:
    """Appends whole lines under a file lock. Threads that append to one file at a time share one fsync."""

    def __init__(self, *, max_file_bytes: int) -> None:
        self._max_file_bytes = max_file_bytes
        self._queues: dict[Path, _Queue] = {}
        self._mutex = Lock()

    def append(self, path: Path, line: Line) -> None:
        """Return when the line is on disk. Raises OSError when it is not."""
        with self._mutex:
            queue = self._queues.setdefault(path, _Queue())
            queue.pending.append(line)
            queue.users += 1
        try:
            with queue.writing:
                if not line.is_written:
                    self._write_pending(path, queue)
        finally:
            with self._mutex:
                queue.users -= 1
                if not queue.users:
                    del self._queues[path]
        if line.error is not None:
            raise line.error

    def _write_pending(self, path: Path, queue: _Queue) -> None:
        with self._mutex:
            batch, queue.pending = queue.pending, []
        error: OSError | None = None
        try:
            self._write(path, batch)
        except OSError as problem:
            error = problem
        for line in batch:
            line.is_written, line.error = True, error

    def _write(self, path: Path, batch: list[Line]) -> None:
        descriptor = _open_locked(path)
        try:
            size = os.fstat(descriptor).st_size
            text = self._text(batch, size)
            if size and os.pread(descriptor, 1, size - 1) != _NEWLINE:
                text = _NEWLINE + text  # a killed writer's torn line stays one damaged line
            _write_all(descriptor, text)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not size:
            _sync_directory(path.parent)

    def _text(self, batch: list[Line], size: int) -> bytes:
        texts = []
        for line in batch:
            text = line.text if size + len(line.text) < self._max_file_bytes else line.shorter()
            size += len(text) + 1
            texts.append(text + _NEWLINE)
        return b"".join(texts)


def _open_locked(path: Path) -> int:
    """A descriptor of the file that has this name once the lock is held: it may be deleted while we wait."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _write_all(descriptor: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
