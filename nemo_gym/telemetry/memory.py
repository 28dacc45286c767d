"""Memory of a run's servers and their machine, sampled beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nemo_gym.telemetry.metrics import record


class WatchedServer(NamedTuple):
    """A server process whose tree is measured."""

    server_type: str
    pid: int


class MemoryProfiler:
    """Reports memory every `interval_seconds` until stopped; `servers` tells the processes by instance name."""

    def __init__(self, servers: Callable[[], Mapping[str, WatchedServer]], *, interval_seconds: float = 1.0) -> None:
        self._servers = servers
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._peaks: dict[tuple[str, str], int] = {}

    def start(self) -> None:
        """Sample in a daemon thread from now on."""
        self._thread = threading.Thread(target=self._run, name="nemo-gym-memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End sampling. Safe to call again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._interval + 1)
            self._thread = None

    def sample(self) -> None:
        """Report what everything uses now, and the most it was seen to use."""
        import psutil

        for name, (server_type, pid) in self._servers().items():
            self._sample_server(name, server_type, pid)
        memory = psutil.virtual_memory()
        record("gym.host.memory.usage", memory.used)
        record("gym.host.memory.available", memory.available)
        record("gym.host.memory.total", memory.total)
        record("gym.host.memory.sampled_peak", self._peak("", "", memory.used))

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.sample()

    def _sample_server(self, name: str, server_type: str, pid: int) -> None:
        usage, processes = _usage_of_tree(pid)
        attributes: dict[str, str | int] = {
            "nemo.gym.server.name": name,
            "nemo.gym.server.type": server_type,
            "process.pid": pid,
        }
        record("gym.server.processes", processes, attributes)
        for kind, size in usage.items():
            labelled: dict[str, str | int] = {**attributes, "memory.type": kind}
            record("gym.server.memory.usage", size, labelled)
            record("gym.server.memory.sampled_peak", self._peak(name, kind, size), labelled)

    def _peak(self, name: str, kind: str, size: int) -> int:
        peak = self._peaks[name, kind] = max(size, self._peaks.get((name, kind), 0))
        return peak


def _usage_of_tree(pid: int) -> tuple[dict[str, int], int]:
    """({"rss": bytes, "pss": bytes}, number of processes) of a process and its descendants; pss where it is told."""
    import psutil

    usage: dict[str, int] = {}
    alive = 0
    try:
        root = psutil.Process(pid)
        processes: list[Any] = [root, *root.children(recursive=True)]
    except psutil.Error:
        return usage, alive
    for process in processes:
        try:
            memory = process.memory_full_info()
        except psutil.Error:
            continue
        alive += 1
        for kind in ("rss", "pss"):
            if (size := getattr(memory, kind, None)) is not None:
                usage[kind] = usage.get(kind, 0) + size
    return usage, alive
