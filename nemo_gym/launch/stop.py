"""Ending a run from outside it."""

from __future__ import annotations

import os
import select
import signal
import time

from nemo_gym.config.handover import COLLECTORS_FOLDER_NAME
from nemo_gym.launch.linux import open_pidfd
from nemo_gym.launch.run_directory import RunInfo
from nemo_gym.launch.tables import ask_all

STOP_SECONDS = 30.0
_KILLED_SECONDS = 5.0
_POLL_SECONDS = 0.05
_ASKED_SECONDS = 0.5


def stop_run(info: RunInfo, timeout: float = STOP_SECONDS) -> bool:
    """End a run: TERM to its launcher, which ends its servers in order, and KILL after `timeout` seconds.

    True when it ended by itself, False when it had to be killed. A run that has already ended counts as stopped.
    """
    if _signal_and_wait(info, signal.SIGTERM, timeout):
        return True
    _signal_and_wait(info, signal.SIGKILL, _KILLED_SECONDS)
    return False


def collectors_of(info: RunInfo) -> list[int]:
    """The processes that collect rollouts with the run's servers now, by pid; a run of `gym eval run` is its own."""
    return list(ask_all(info.directory / COLLECTORS_FOLDER_NAME, "rollouts", seconds=_ASKED_SECONDS, limit=0))


def _signal_and_wait(info: RunInfo, number: signal.Signals, seconds: float) -> bool:
    pidfd = open_pidfd(info.pid)
    try:
        if not info.is_alive:
            return True
        os.kill(info.pid, number)
        if pidfd is not None:
            select.select([pidfd], [], [], seconds)
        return _wait_for_folder(info, seconds)
    except ProcessLookupError:
        return True
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _wait_for_folder(info: RunInfo, seconds: float) -> bool:
    """The folder is the last thing of a run to go, whoever removes it."""
    deadline = time.monotonic() + seconds
    while info.is_alive or info.directory.exists():
        if time.monotonic() > deadline:
            return not info.is_alive
        time.sleep(_POLL_SECONDS)
    return True
