"""The server processes of a run: how each is started, and on which sockets it is started again."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.launch.environment import Handover
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.leftovers import kill_leftovers
from nemo_gym.launch.placement import SharedSet, shard_name, start_shard
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.readiness import PROBE_AFTER_SECONDS, Awaited, Readiness
from nemo_gym.launch.restarts import Restarted
from nemo_gym.launch.spawner import Spawner
from nemo_gym.launch.starting import StartedServer, start_server
from nemo_gym.launch.status import probe_url
from nemo_gym.launch.supervisor import Supervisor
from nemo_gym.launch.venvs import Venv


@dataclass
class Fleet:
    """A process is called after its server; one that holds several is `shard-<number>`.

    `sockets` has the listening sockets by server, those of further shards by `<shard> <server>`. With `keeps_sockets`
    they stay open here, so that a server can be started again and requests wait for it in between.
    """

    plans: list[ServerPlan]
    venvs: Mapping[Path, Venv]
    handover: Handover
    spawner: Spawner
    supervisor: Supervisor
    sockets: dict[str, socket.socket]
    shared: SharedSet | None = None
    keeps_sockets: bool = False
    ready: set[str] = field(default_factory=set)
    """The processes that have begun to serve."""

    def start_all(self, readiness: Readiness, tell_reason: Callable[[str], None]) -> None:
        """Start every process and have its readiness awaited; `tell_reason` hears of those that aren't forked."""
        for name in self.names():
            started = self._start(name, {})
            if started.start.mode == "exec":
                tell_reason(f"({name}) started with its own interpreter: {started.start.reason}")
            if started.ready is not None:
                readiness.expect(self._awaited(name, started.ready))

    def start_again(self, name: str, generation: int) -> Restarted:
        """Start a dead process anew on its sockets. Raises LaunchError."""
        if not self._bound(name):
            raise LaunchError("its sockets were closed.")
        alive = [process.pid for process in self.supervisor.processes.values() if process.returncode is None]
        kill_leftovers(self.handover.run_directory, [name] if self._plan(name) is not None else [], alive)
        self.supervisor.replaces(name)
        started = self._start(name, {GENERATION_ENV: str(generation)})
        assert started.ready is not None, "it has sockets"
        return Restarted(started.process, started.ready)

    def start_once_more(self, name: str) -> Awaited:
        """The same for one that never served, to be awaited as the first one was."""
        return self._awaited(name, self.start_again(name, 0).ready)

    def answers(self, name: str) -> bool:
        """Whether HTTP requests at a server's own address are answered; of a shard that is no proof."""
        plan = self._plan(name)
        bound = self.sockets.get(name)
        if plan is None or bound is None:
            return False
        host, port = bound.getsockname()[:2]
        address = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        return probe_url(f"http://{address}:{port}", timeout=1.0) == "success"

    def names(self) -> Iterator[str]:
        """Of all processes: shards first, then the servers that have one each."""
        shared = self.shared.names if self.shared is not None else []
        yield from map(shard_name, range(len(self.shared.listeners) if self.shared is not None else 0))
        yield from (plan.name for plan in self.plans if plan.name not in shared)

    def processes_of(self, server: str) -> list[str]:
        """The processes that hold a server, by name; a process is among them by its own."""
        if self.shared is not None and server in self.shared.names:
            return [shard_name(index) for index in range(len(self.shared.listeners))]
        return [server] if server in list(self.names()) else []

    def servers_of(self, name: str) -> list[str]:
        """The servers that a process holds."""
        return [name] if self._plan(name) is not None or self.shared is None else self.shared.names

    def process_of(self, server: str) -> ServerProcess | None:
        """The first of the processes that hold a server."""
        names = self.processes_of(server)
        return self.supervisor.processes.get(names[0]) if names else None

    def note_ready(self, name: str) -> None:
        """From here on the sockets are the server's own: were it to crash for good, its port must refuse, not hang."""
        self.ready.add(name)
        if not self.keeps_sockets:
            self.close_sockets(name)

    def close_sockets(self, name: str) -> None:
        for key in self._socket_keys(name):
            if (bound := self.sockets.pop(key, None)) is not None:
                bound.close()

    def _start(self, name: str, variables: Mapping[str, str]) -> StartedServer:
        log = self.supervisor.logs[name]
        plan = self._plan(name)
        if plan is not None:
            started = start_server(
                plan,
                self.venvs[plan.directory],
                self.handover,
                self.spawner,
                log=log,
                bound=self.sockets.get(name),
                variables=variables,
            )
        else:
            assert self.shared is not None, "only shards are no server's own processes"
            index = list(self.names()).index(name)
            started = start_shard(self.shared, index, self.handover, self.spawner, log, variables)
        self.supervisor.add(name, started.process)
        return started

    def _awaited(self, name: str, pipe: int) -> Awaited:
        address = self._bound(name)[0].getsockname()[:2]
        if self._plan(name) is not None:
            return Awaited(name, pipe, address, time.monotonic() + PROBE_AFTER_SECONDS)
        assert self.shared is not None
        # It reports by itself, and one of its servers that answers says nothing of the others.
        return Awaited(name, pipe, address, math.inf, servers=tuple(self.shared.names))

    def _plan(self, name: str) -> ServerPlan | None:
        shared = self.shared.names if self.shared is not None else []
        return next((plan for plan in self.plans if plan.name == name and name not in shared), None)

    def _bound(self, name: str) -> list[socket.socket]:
        return [self.sockets[key] for key in self._socket_keys(name) if key in self.sockets]

    def _socket_keys(self, name: str) -> list[str]:
        if self._plan(name) is not None or self.shared is None:
            return [name]
        members = self.shared.names
        return members if name == shard_name(0) else [f"{name} {member}" for member in members]


@dataclass(frozen=True)
class RestartedServers:
    """What a `Reviver` needs of a fleet; `record` is told of every process that has taken another's place."""

    fleet: Fleet
    supervisor: Supervisor
    record: Callable[[str], None]

    def start_again(self, name: str, generation: int) -> Restarted:
        return self.fleet.start_again(name, generation)

    def answers(self, name: str) -> bool:
        return self.fleet.answers(name)

    def is_back(self, name: str) -> None:
        self.record(name)

    def describe(self, process: ServerProcess) -> str:
        return self.supervisor.describe(process)

    def give_up(self, process: ServerProcess, why: str) -> None:
        self.fleet.close_sockets(process.name)
        self.supervisor.give_up(process, why)
