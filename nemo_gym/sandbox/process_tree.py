"""Ending everything that a command started, wherever it has moved itself to."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

_ROUNDS = 40
_CLEAN_LOOKS = 2
_PAUSE_SECONDS = 0.005


def kill_tree(root: int | None, marker: str | None) -> None:
    """Kill a process with its group and descendants, and whatever inherited the environment entry `marker`.

    `marker` is `NAME=value`. It finds what left the group and the tree, on systems that show environments; a process
    that is just becoming another program shows none, so it takes two looks to be sure.
    """
    if root is not None:
        _kill_descendants(root)
    clean_looks = 0
    for _ in range(_ROUNDS if marker else 0):
        found = marked_processes(marker or "")
        for pid in found:
            _kill(pid)
        clean_looks = 0 if found else clean_looks + 1
        if clean_looks == _CLEAN_LOOKS:
            break
        time.sleep(_PAUSE_SECONDS)


def marked_processes(marker: str) -> list[int]:
    """Pids of processes with `marker` in the environment they were started with, this one excepted."""
    needle = marker.encode()
    proc = Path("/proc")
    pids = [int(path.name) for path in proc.iterdir() if path.name.isdigit()] if proc.is_dir() else []
    return [pid for pid in pids if pid != os.getpid() and needle in _environment(pid)]


def _kill_descendants(root: int) -> None:
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(root).children(recursive=True)
    with contextlib.suppress(OSError):
        os.killpg(root, signal.SIGKILL)
    _kill(root)
    for process in descendants:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
