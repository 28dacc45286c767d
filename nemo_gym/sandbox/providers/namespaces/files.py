"""Copying files into and out of a folder whose content nobody vouches for: no link in it is followed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from nemo_gym.sandbox.errors import SandboxPathError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe must not be waited for


def copy_in(source: Path, folder: Path, name: PurePosixPath, owner: int | None) -> None:
    """Copy a file to `name` below `folder`, making the folders it needs. Raises SandboxPathError for a link on the way,
    OSError."""
    with source.open("rb") as content, _parent(folder, name, owner=owner, make=True) as parent:
        mode = stat.S_IMODE(os.fstat(content.fileno()).st_mode)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name.name, dir_fd=parent)
        target = os.open(name.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
        with os.fdopen(target, "wb") as file:
            shutil.copyfileobj(content, file)
            if owner is not None:
                os.fchown(file.fileno(), owner, owner)
            os.fchmod(file.fileno(), mode & 0o777)


def copy_out(folder: Path, name: PurePosixPath, target: Path) -> None:
    """Copy the regular file `name` below `folder`. Raises SandboxPathError for a link on the way or another kind of
    file, OSError."""
    with _parent(folder, name, owner=None, make=False) as parent, _no_links(name):
        descriptor = os.open(name.name, _READ, dir_fd=parent)
        with os.fdopen(descriptor, "rb") as content:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SandboxPathError(f"{name} is no regular file: only those are copied out of a sandbox.")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777)


@contextlib.contextmanager
def _parent(folder: Path, name: PurePosixPath, *, owner: int | None, make: bool) -> Iterator[int]:
    """The open folder that a file is in; the way there is walked step by step."""
    current = os.open(folder, _FOLDER)
    try:
        for part in name.parts[:-1]:
            with _no_links(name):
                following = _step(current, part, owner, make=make)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def _step(current: int, part: str, owner: int | None, *, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=current)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(part, 0o755, dir_fd=current)
    if owner is not None:
        os.chown(part, owner, owner, dir_fd=current, follow_symlinks=False)
    return os.open(part, _FOLDER, dir_fd=current)


@contextlib.contextmanager
def _no_links(name: PurePosixPath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise SandboxPathError(f"{name} leads over a link in the sandbox, which is not followed.") from error
        raise
