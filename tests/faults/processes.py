"""The processes of a scene: which of them are alive, which is the victim, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psutil

from tests.faults.cells import Victim

SCENE_ENV = "GYM_FAULT_SCENE"
"""Every process started for a scene inherits it."""

_COMMANDS = {
    Victim.ZYGOTE: "gym-zygote",
    Victim.RESOURCES: "held_counter",
    Victim.AGENT: "held_agent",
    Victim.MODEL: "policy_model",
    Victim.SHARD: "shard-1",
}


def processes_of(mark: str) -> dict[int, str]:
    """Live processes that carry the mark, with what `ps` calls them; zombies are gone."""
    needle = f"{SCENE_ENV}={mark}".encode()
    found = {}
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and needle in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "comm").read_text().strip()
    return found


def victim_pid(victim: Victim, mark: str) -> int | None:
    """The one process of that name, the youngest if it was replaced; None when there is none."""
    named = [pid for pid, name in processes_of(mark).items() if name == _COMMANDS[victim]]
    return max(named, key=_started, default=None)


def _started(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0


def listening(mark: str) -> set[int]:
    """Ports on which processes of the scene listen."""
    ours = processes_of(mark)
    return {port for port, pid in _listeners() if pid in ours}


def still_listening(ports: set[int], mark: str) -> set[int]:
    """Those of the ports that a process of the scene, or no process that can be seen, listens on."""
    ours = processes_of(mark)
    return {port for port, pid in _listeners() if port in ports and (pid is None or pid in ours)}


def _listeners() -> list[tuple[int, int | None]]:
    connections = psutil.net_connections("tcp")
    return [(each.laddr.port, each.pid) for each in connections if each.status == psutil.CONN_LISTEN and each.laddr]


def end_all(mark: str) -> None:
    """The harness's own broom, for what should have ended and didn't."""
    for pid in processes_of(mark):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
