"""Processes that a dead server started and that left its process group: they must not meet its successor."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from pathlib import Path

from nemo_gym.config.handover import INSTANCE_ENV, RUN_DIR_ENV
from nemo_gym.launch.linux import IS_LINUX


def kill_leftovers(run_directory: Path, names: Collection[str], spare: Collection[int]) -> list[int]:
    """Kill what says in its environment that it works for one of these servers of a run; returns the pids.

    Only programs that were executed say so: what was merely forked shares its parent's process group, and its fate.
    """
    if not IS_LINUX or not names:
        return []
    run = f"{RUN_DIR_ENV}={run_directory}".encode()
    wanted = [f"{INSTANCE_ENV}={name}".encode() for name in names]
    killed = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in spare and _says(folder, run, wanted):
            _kill(int(folder.name))
            killed.append(int(folder.name))
    return killed


def _says(folder: Path, run: bytes, wanted: Collection[bytes]) -> bool:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return run in variables and any(each in variables for each in wanted)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return
