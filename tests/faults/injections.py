"""The five faults, done to a live process from outside.

TERM, KILL and STOP are signals. A socket reset takes the victim's own sockets by `pidfd_getfd`: TCP connections are
disconnected, so that both ends see a reset; the socket between launcher and zygote is shut down. A full disk is a
small tmpfs with nothing left on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SYS_PIDFD_GETFD = 438
_DISK_BYTES = 2 << 20
_libc = ctypes.CDLL(None, use_errno=True)


class InjectionError(Exception):
    """A fault that could not be made here; says why."""


def reset_sockets(pid: int) -> int:
    """Break the live connections of a process; how many there were."""
    broken = 0
    pidfd = os.pidfd_open(pid)
    try:
        for number in _socket_descriptors(pid):
            descriptor = _libc.syscall(_SYS_PIDFD_GETFD, pidfd, number, 0)
            if descriptor < 0:
                raise InjectionError(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
            with socket.socket(fileno=descriptor) as own:
                broken += _break(own)
    finally:
        os.close(pidfd)
    return broken


def _socket_descriptors(pid: int) -> list[int]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                found.append(int(entry.name))
    return found


def _break(own: socket.socket) -> bool:
    try:
        own.getpeername()
    except OSError:
        return False
    if own.family in (socket.AF_INET, socket.AF_INET6):
        unspecified = struct.pack("H14x", socket.AF_UNSPEC)
        return bool(_libc.connect(own.fileno(), unspecified, len(unspecified)) == 0)
    if own.family == socket.AF_UNIX and own.type == socket.SOCK_SEQPACKET:
        own.shutdown(socket.SHUT_RDWR)
        return True
    return False


@dataclass(frozen=True)
class Disk:
    """A small file system of its own."""

    path: Path

    def mount(self) -> None:
        self.path.mkdir()
        size = f"size={_DISK_BYTES}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", self.path], capture_output=True, text=True)
        if done.returncode:
            raise InjectionError(f"a tmpfs can't be mounted here ({done.stderr.strip()})")

    def fill(self) -> None:
        """Take all that is left; files that exist can't grow past their last page."""
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.path], check=True, capture_output=True)
        self.path.rmdir()

    @property
    def _filler(self) -> Path:
        return self.path / "filler"
