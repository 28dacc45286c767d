"""Ends what Ray leaves behind of a cluster of ours when we are killed: some of its processes outlive the others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

from nemo_gym.config.roots import PARENT_DIR
from nemo_gym.launch.linux import process_start

_GRACE_SECONDS = 1.0
_DONE = b"1"


def descendants() -> set[int]:
    """The pids below this process."""
    import psutil

    return {process.pid for process in psutil.Process().children(recursive=True)}


def guard(pids: Iterable[int]) -> Callable[[], None]:
    """Have these processes killed when this one is gone; returns what calls that off."""
    known = {pid: start for pid in pids if (start := process_start(pid)) is not None}
    lifeline, held = os.pipe()
    code = (
        f"import sys; sys.path.append({str(PARENT_DIR)!r}); from nemo_gym.launch.ray_guard import main; "
        f"main({lifeline}, {known!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[lifeline],
        start_new_session=True,
    )
    os.close(lifeline)

    def dismiss() -> None:
        with contextlib.suppress(OSError):
            os.write(held, _DONE)
        os.close(held)
        process.wait()

    return dismiss


def main(lifeline: int, pids: dict[int, str]) -> None:
    """Wait until we are called off, or alone; then give Ray a moment, and kill what it has left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(lifeline, 1) == _DONE:
        return
    time.sleep(_GRACE_SECONDS)
    for pid, start in pids.items():
        if process_start(pid) == start:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
