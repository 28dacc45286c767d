"""Files that are written in whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def replacing(path: Path, *, mode: int | None = None, durable: bool = True) -> Iterator[TextIO]:
    """A text file that takes the place of `path` when the block ends well, and is gone when it doesn't.

    `mode` is by default that of the file which was there, else what new files get. What is `durable` is on the disk
    before it takes the place. Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(name).chmod(_mode_for(path) if mode is None else mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user's processes can read, whole or not at all. Raises OSError."""
    with replacing(path, mode=0o600, durable=False) as file:
        file.write(text)


def _mode_for(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
