"""The server processes of a run whose servers are actors: the same to the rest of a launch as those of one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.launch.fleet import Fleet
from nemo_gym.launch.plan import Start
from nemo_gym.launch.ray_seats import START_SECONDS, RaySeats, RemoteProcess
from nemo_gym.launch.readiness import PROBE_AFTER_SECONDS, Awaited, Readiness
from nemo_gym.launch.restarts import Restarted
from nemo_gym.launch.starting import StartedServer
from nemo_gym.launch.status import probe_url


@dataclass
class RayFleet(Fleet):
    """Its sockets are the actors'."""

    seats: RaySeats = field(kw_only=True)

    def start_all(self, readiness: Readiness, tell_reason: Callable[[str], None]) -> None:
        super().start_all(readiness, tell_reason)
        for process in self.supervisor.processes.values():
            if isinstance(process, RemoteProcess):
                process.settled.wait(START_SECONDS)

    def start_again(self, name: str, generation: int) -> Restarted:
        self.supervisor.replaces(name)
        started = self._start(name, {GENERATION_ENV: str(generation)} if generation else {})
        assert started.ready is not None
        return Restarted(started.process, started.ready)

    def answers(self, name: str) -> bool:
        host, port = self.seats.addresses()[name]
        return probe_url(f"http://{f'[{host}]' if ':' in host else host}:{port}", timeout=1.0) == "success"

    def note_ready(self, name: str) -> None:
        self.ready.add(name)

    def _start(self, name: str, variables: Mapping[str, str]) -> StartedServer:
        ready, ready_end = os.pipe()
        process = self.seats.start(name, int(variables.get(GENERATION_ENV, 0)), ready_end)
        self.supervisor.add(name, process)
        return StartedServer(process, Start("fork"), ready)

    def _awaited(self, name: str, pipe: int) -> Awaited:
        return Awaited(name, pipe, self.seats.addresses()[name], time.monotonic() + PROBE_AFTER_SECONDS)
