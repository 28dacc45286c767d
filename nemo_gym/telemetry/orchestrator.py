"""Telemetry of the process that starts a run's servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_gym.telemetry import configure_telemetry_env, get_telemetry, init_telemetry, record, shutdown_telemetry
from nemo_gym.telemetry.memory import MemoryProfiler, WatchedServer

ORCHESTRATOR = "orchestrator"


class RunTelemetry:
    """Hands the config's `telemetry:` block down to the servers, and reports how many of them are up."""

    def __init__(self) -> None:
        self._memory: MemoryProfiler | None = None

    def start(self, telemetry_config: Mapping[str, Any] | None) -> None:
        """Set the environment that servers inherit, and start exporting from this process if it says so."""
        configure_telemetry_env(telemetry_config)
        init_telemetry(ORCHESTRATOR, ORCHESTRATOR)

    def ready(self, servers: Mapping[str, WatchedServer]) -> None:
        """All servers are up; from now on their memory is sampled, where that is asked for."""
        record("gym.servers.active", len(servers))
        telemetry = get_telemetry()
        if telemetry is not None and telemetry.settings.memory_profiling_enabled and self._memory is None:
            interval = telemetry.settings.memory_profiling_interval_seconds
            self._memory = MemoryProfiler(lambda: servers, interval_seconds=interval)
            self._memory.start()

    def stop(self) -> None:
        """No server is up any more; flush what was recorded. Safe to call again."""
        if self._memory is not None:
            self._memory.stop()
            self._memory = None
        record("gym.servers.active", 0)
        shutdown_telemetry()
