"""The few Linux calls the standard library has no name for; each answers False or None where the kernel refuses."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

IS_LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_NAME = 15


def die_with_parent() -> bool:
    """Have the kernel kill this process when the thread that made it ends; survives exec."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> bool:
    """Become the new parent of grandchildren whose own parent ends."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def name_process(name: str) -> bool:
    """What `ps` and `top` show for this process, cut to 15 bytes."""
    return _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:_LONGEST_NAME]))


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where pidfds are refused or the pid is gone."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def thread_count() -> int:
    """Threads of this process, those of C libraries included."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def process_start(pid: int) -> str | None:
    """What tells a process from a later one with its pid; None when there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return _process_start_elsewhere(pid) if not IS_LINUX else None
    return None if fields[0] in ("Z", "X") else fields[19]


def seconds_since_start(started: str) -> float | None:
    """How long ago a process started, by what `process_start` said of it; None where that doesn't tell."""
    if not IS_LINUX or not started.isdigit():
        return None
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return round(max(0.0, since_boot - int(started) / os.sysconf("SC_CLK_TCK")), 1)


def parent_of(pid: int) -> int | None:
    """The pid of a process's parent; None when there is no such process, or nobody tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1])


def _process_start_elsewhere(pid: int) -> str | None:
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _prctl(option: int, argument: object) -> bool:
    if not IS_LINUX:
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) == 0)
