"""Finding every process of a run by a variable it inherited.

The variable's *name* is the run's, so that a run inside a run carries both. Only the fork server's environment holds
it, never that of the program that launched the run.
"""

import os
import secrets
import signal
import time
from collections.abc import Set as AbstractSet
from pathlib import Path

MARKER_PREFIX = "NEMO_GYM_RUN_MARKER_"
_PASSES = 40
_CLEAN_LOOKS = 2
_PAUSE_SECONDS = 0.005


def new_marker() -> str:
    """A variable name no other run uses."""
    return MARKER_PREFIX + secrets.token_hex(8)


def marked_processes(marker: str) -> list[int]:
    """Pids of live processes that inherited the marker; those of other users can't be read and are left out."""
    needle = marker.encode() + b"="
    return [pid for pid in _pids() if needle in _environment(pid)]


def sweep(marker: str, spare: AbstractSet[int] = frozenset()) -> list[int]:
    """Kill what carries the marker until nothing does; returns the pids that were sent SIGKILL.

    A process that is just becoming another program has no readable environment, so it takes two looks to be sure.
    """
    killed: set[int] = set()
    clean_looks = 0
    for _ in range(_PASSES):
        found = [pid for pid in marked_processes(marker) if pid != os.getpid() and pid not in spare]
        for pid in found:
            _kill(pid)
        killed.update(found)
        clean_looks = 0 if found else clean_looks + 1
        if clean_looks == _CLEAN_LOOKS:
            break
        time.sleep(_PAUSE_SECONDS)
    return sorted(killed)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return
