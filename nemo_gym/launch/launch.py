"""A whole run: started in order, watched, ended in order."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
import time
from collections.abc import Callable, Container
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from nemo_gym.config.errors import NoServerInstancesError
from nemo_gym.config.handover import write_config
from nemo_gym.config.instances import server_instances
from nemo_gym.config.keys import TELEMETRY_KEY_NAME
from nemo_gym.config.placement import set_placed_shards
from nemo_gym.launch import detach, ray_cluster
from nemo_gym.launch.addresses import endpoints_of, record_ports
from nemo_gym.launch.endpoints import EndpointWait, model_endpoints
from nemo_gym.launch.environment import Handover
from nemo_gym.launch.errors import ServerFailedError, ServersLateError
from nemo_gym.launch.fork_server import take_spawner
from nemo_gym.launch.logs import LogConsole
from nemo_gym.launch.placement import (
    SharedSet,
    bind_shards,
    shard_name,
    shared_members,
    start_shard,
    why_no_shards,
)
from nemo_gym.launch.plan import ServerPlan, ensure_venvs, plan_servers
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.readiness import PROBE_AFTER_SECONDS, Awaited, Readiness
from nemo_gym.launch.records import display_record, instance_table, numbered
from nemo_gym.launch.run_directory import RunDirectory
from nemo_gym.launch.settings import LaunchSettings
from nemo_gym.launch.signals import deaf, stop_signals
from nemo_gym.launch.sockets import close_all, listen_all
from nemo_gym.launch.spawner import Spawner
from nemo_gym.launch.starting import start_server
from nemo_gym.launch.status import ServerStatus, probe_url
from nemo_gym.launch.supervisor import Supervisor
from nemo_gym.launch.venvs import Venv, VenvSettings
from nemo_gym.serve.limits import raise_open_files
from nemo_gym.telemetry.memory import WatchedServer
from nemo_gym.telemetry.orchestrator import RunTelemetry

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nemo_gym.launch.head import RunningHead

POLL_SECONDS = 60
STOP_GRACE_SECONDS = 5.0
HEAD = "head_server"


class Launch:
    """The servers of one composed config.

    `output` gets the lines that people and scripts wait for, `server_output` what the servers write, each line with its
    server's name (None shows nothing; the log files have it all). `records` are those of `/server_instances`.
    """

    def __init__(
        self, config: DictConfig, *, output: Callable[[str], None] = print, server_output: TextIO | None = None
    ) -> None:
        self.config = config
        self.output = output
        self.server_output = server_output
        self.settings = LaunchSettings.from_config(config)
        self.plans: list[ServerPlan] = []
        self.records: list[dict[str, Any]] = []
        self.head: RunningHead | None = None
        self._spawner: Spawner | None = None
        self._supervisor: Supervisor | None = None
        self._sockets: dict[str, socket.socket] = {}
        self._directory: RunDirectory | None = None
        self._console: LogConsole | None = None
        self._readiness: Readiness | None = None
        self._leave_ray: Callable[[], None] | None = None
        self._telemetry = RunTelemetry()
        self._shared: SharedSet | None = None

    @property
    def processes(self) -> dict[str, ServerProcess]:
        """The server processes by instance name; servers that share processes have that of their first copies."""
        found = self._supervisor.processes if self._supervisor is not None else {}
        if self._shared is None:
            return found
        first = shard_name(0)
        names = {plan.name: first if plan.name in self._shared.names else plan.name for plan in self.plans}
        return {name: found[key] for name, key in names.items() if key in found}

    @cached_property
    def redact(self) -> Callable[[str], str]:
        """Masks the config's secrets in any text."""
        from nemo_gym.config.secrets import Redactor

        return Redactor.from_config(self.config)

    def start(self) -> None:
        """Start everything and return when all of it is ready; after a dry run, when every server was constructed.

        Whatever goes wrong, and any interrupt, ends what was started and is raised again. Raises ConfigError,
        LaunchError or StopRequested.
        """
        try:
            with stop_signals():
                self._start()
        except BaseException:
            self.shutdown()
            raise

    def poll(self) -> None:
        """Raise ServerFailedError or LaunchError when a server or the head server has ended. Any thread may ask."""
        supervisor, head = self._supervisor, self.head
        if supervisor is not None:
            supervisor.check()
        if head is not None:
            head.check()

    def run_forever(self) -> None:
        """Watch until something ends or somebody asks us to stop, then end all of it. After a dry run, just end."""
        try:
            with stop_signals():
                while not self.settings.dry_run and (supervisor := self._supervisor) is not None:
                    self.poll()
                    supervisor.wait_for_death(POLL_SECONDS)
        except KeyboardInterrupt:
            return
        finally:
            self.shutdown()

    def shutdown(self) -> None:
        """End all of it: TERM to each server, a shared grace, KILL for what is left. Safe to call again."""
        steps = [
            self._end_servers,
            self._telemetry.stop,
            *([self.head.stop] if self.head is not None else []),
            *([self._console.stop] if self._console is not None else []),
            *([self._readiness.close] if self._readiness is not None else []),
            lambda: close_all(self._sockets.values()),
            *([self._supervisor.close] if self._supervisor is not None else []),
            *([self._leave_ray] if self._leave_ray is not None else []),
            *([self._directory.remove] if self._directory is not None else []),
            self._forget,
        ]
        with deaf(), contextlib.ExitStack() as stack:
            for step in reversed(steps):
                stack.callback(step)

    def _start(self) -> None:
        detach.claim()
        self.plans = plan_servers(server_instances(self.config))
        if not self.plans:
            raise NoServerInstancesError(
                "The config defines no server: choose some, as in "
                "`gym env start --resources-server mcqa --model-type openai_model`."
            )
        self._telemetry.start(self.config.get(TELEMETRY_KEY_NAME))
        self._spawner = take_spawner()
        for line in numbered(self.plans):
            self.output(line)
        if self.settings.dry_run:
            self._construct()
        else:
            self._serve()

    def _serve(self) -> None:
        endpoints = endpoints_of(self.plans, self.settings)
        self._sockets = listen_all(endpoints, self.settings.ports)
        record_ports(self.config, self.plans, self._sockets)
        handover = self._prepare(self._sockets[HEAD].getsockname()[1])
        venvs = self._ensure_venvs()
        self._share(venvs, handover)
        self._enter_ray()
        write_config(handover.config_file, self.config)
        self._start_head()
        self._spawn_all(venvs, handover)
        self._publish()
        self.wait_until_ready()
        self.wait_for_models()
        if self.head is not None:
            self.head.mark_ready()
        self._telemetry.ready(self._watched())
        detach.announce_ready()

    def _watched(self) -> dict[str, WatchedServer]:
        types = {plan.name: plan.instance.server_type for plan in self.plans}
        processes = self._watch.processes
        return {name: WatchedServer(types.get(name, "shared"), process.pid) for name, process in processes.items()}

    def _share(self, venvs: dict[Path, Venv], handover: Handover) -> None:
        """Decide which servers share processes, and bind the sockets of their further copies."""
        placement = self.settings.placement
        if placement.mode != "shared":
            return
        problem = why_no_shards(self._maker, handover)
        members = [] if problem else shared_members(self.plans, venvs, self._maker.facts())
        if not members:
            reason = problem or "none that rollouts are sent to may share one"
            self.output(f"Every server has a process of its own: {reason}.")
            return
        raise_open_files()
        self._shared = bind_shards(members, placement, self._sockets, self.settings.ports)
        for index, shard in enumerate(self._shared.listeners[1:], start=1):
            self._sockets |= {f"{shard_name(index)} {name}": bound for name, bound in shard.items()}
        set_placed_shards(self.config, self._shared.ports)
        self._watch.titles = {shard_name(k): self._shared.title(k) for k in range(placement.shards)}
        self.output(f"{self._shared.summary} (placement: shared)")

    def _construct(self) -> None:
        """A dry run: every server is built and constructed in its own process, which then ends."""
        handover = self._prepare(f"dry-run-{os.getpid()}")
        venvs = self._ensure_venvs()
        self._enter_ray()
        write_config(handover.config_file, self.config)
        self._spawn_all(venvs, handover)
        self.wait_until_constructed()
        self.output(f"Dry run: all {len(self.plans)} / {len(self.plans)} servers were built.")
        detach.announce_ready()

    def _prepare(self, folder: int | str) -> Handover:
        """The run's folder, its logs, and who watches what."""
        directory = self._directory = RunDirectory.create(folder)
        detach.adopt_log(directory.path)
        shards = range(self.settings.placement.shards if self.settings.placement.mode == "shared" else 0)
        names = [*(plan.name for plan in self.plans), *map(shard_name, shards)]
        logs = {name: directory.log_file(name, self.settings.log_dir) for name in names}
        self._supervisor = Supervisor(logs, lambda text: self.redact(text))
        self._console = LogConsole(logs, self.server_output)
        self._console.start()
        if self._spawner is not None:
            self._spawner.own(directory.path)
            self._spawner.on_death = self._supervisor.note_death
        return Handover(directory.config_file, directory.path, self.settings.uv_variables)

    def _ensure_venvs(self) -> dict[Path, Venv]:
        return ensure_venvs(self.plans, VenvSettings.from_config(self.config), self.output)

    def _enter_ray(self) -> None:
        if ray_cluster.is_wanted(self.plans, self.config):
            self._leave_ray = ray_cluster.connect(self.config)

    def _start_head(self) -> None:
        from nemo_gym.launch.head import start_head

        if self._directory is not None:
            bound = self._sockets.pop(HEAD)
            self.head = start_head(self.config, self.settings.head_host, bound, self._directory)

    def _spawn_all(self, venvs: dict[Path, Venv], handover: Handover) -> None:
        readiness = self._readiness = Readiness(self._watch, self._note_ready, self.output)
        problem = self._maker.facts().problem
        if problem is not None:
            self.output(f"Servers start slowly, each importing by itself: {problem}")
        shared = self._shared.names if self._shared is not None else []
        self._spawn_shards(handover, readiness)
        for plan in self.plans:
            if plan.name in shared:
                continue
            log, bound = self._watch.logs[plan.name], self._sockets.get(plan.name)
            started = start_server(plan, venvs[plan.directory], handover, self._maker, log=log, bound=bound)
            if started.start.mode == "exec" and self.config.get("verbose"):
                self.output(f"({plan.name}) started with its own interpreter: {started.start.reason}")
            self._watch.add(plan.name, started.process)
            if started.ready is not None and bound is not None:
                probe_at = time.monotonic() + PROBE_AFTER_SECONDS
                readiness.expect(Awaited(plan.name, started.ready, bound.getsockname()[:2], probe_at))

    def _spawn_shards(self, handover: Handover, readiness: Readiness) -> None:
        if self._shared is None:
            return
        for index, listeners in enumerate(self._shared.listeners):
            name = shard_name(index)
            started = start_shard(self._shared, index, handover, self._maker, self._watch.logs[name])
            self._watch.add(name, started.process)
            address = next(iter(listeners.values())).getsockname()[:2]
            probe_at = math.inf  # it reports by itself, and one server that answers says nothing of the others
            readiness.expect(Awaited(name, started.ready, address, probe_at, servers=tuple(self._shared.names)))

    def _publish(self) -> None:
        now = time.time()
        self.records = []
        for plan in self.plans:
            host, port = plan.instance.host, self._sockets[plan.name].getsockname()[1]
            self.records.append(display_record(plan, host, port, self.processes[plan.name].pid, now))
        if self.head is not None:
            self.head.set_instances(self.records)
        if self._directory is not None:
            self._directory.publish(self.settings.head_host, self.settings.head_port, self.records, self._logs)

    @property
    def _logs(self) -> dict[str, Path]:
        """The log of every server: of one with several copies that of the first, the others by their shards' names."""
        logs = dict(self._watch.logs)
        for name in self._shared.names if self._shared is not None else ():
            logs[name] = logs[shard_name(0)]
        return logs

    def wait_until_ready(self) -> None:
        """Return when every server answers, and say so. Raises ServerFailedError or ServersLateError."""
        if self._readiness is not None:
            self._readiness.wait(self.settings.spinup_seconds)
        count = len(self.plans)
        self.output(f"All {count} / {count} servers ready! Polling every {POLL_SECONDS}s")
        self.show_instances()

    def show_instances(self) -> None:
        """Write the table of servers."""
        self.output(instance_table(self.records))

    def statuses(self, done: Container[str], deadline: float | None = None) -> list[tuple[str, ServerStatus]]:
        """What each server that isn't `done` answers, until the monotonic `deadline`."""
        waiting = [record for record in self.records if record["process_name"] not in done]
        in_time = (record for record in waiting if deadline is None or time.monotonic() < deadline)
        return [(record["process_name"], probe_url(record["url"])) for record in in_time]

    def _note_ready(self, name: str) -> None:
        """From here on the server's socket is its own: were it to crash, its port must refuse and not hang."""
        own = self._sockets.pop(name, None)
        for bound in [own] if own is not None else self._sockets_of_shard(name):
            bound.close()

    def _sockets_of_shard(self, name: str) -> list[socket.socket]:
        if self._shared is None:
            return []
        if name == shard_name(0):
            return [self._sockets.pop(member) for member in self._shared.names]
        return [self._sockets.pop(f"{name} {member}") for member in self._shared.names]

    def wait_for_models(self) -> None:
        """Return when the endpoints that model servers call answer. Raises ConfigError naming the silent ones."""
        if self.settings.endpoint_seconds > 0:
            wait = EndpointWait(self.output, self._pause, lambda text: self.redact(text))
            wait.wait(model_endpoints(_resolved_models(self.config, self.plans)), self.settings.endpoint_seconds)

    def _pause(self, seconds: float) -> None:
        self._watch.wait_for_death(seconds)
        self.poll()

    def wait_until_constructed(self) -> None:
        """Return when every process of a dry run has ended well. Raises ServerFailedError or ServersLateError."""
        limit = self.settings.spinup_seconds
        deadline = None if limit is None else time.monotonic() + limit
        for name, process in self.processes.items():
            try:
                code = process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise ServersLateError(
                    f"After {limit:g} s, {name} is still being constructed: allow more time with "
                    f"+server_spinup_timeout_seconds=<seconds>."
                ) from None
            if code != 0:
                raise ServerFailedError(self._watch.describe(process))

    def _end_servers(self) -> None:
        if self._spawner is None:
            return
        alive = [process for process in self.processes.values() if process.returncode is None]
        if self._supervisor is not None:
            self._supervisor.expect_deaths()
        if alive:
            servers = "server" if len(alive) == 1 else "servers"
            self.output(f"Stopping {len(alive)} {servers}, waiting up to {STOP_GRACE_SECONDS:g} s …")
        self._spawner.close(STOP_GRACE_SECONDS)
        killed = list(dict.fromkeys(process.name for process in alive if process.returncode == -9))
        if killed:
            self.output(f"Killed, since they didn't stop in time: {', '.join(killed)}")
        if alive:
            self.output("Finished: all servers have stopped.")

    def _forget(self) -> None:
        self._spawner = self._supervisor = self._directory = self._console = self._readiness = None
        self._leave_ray = self.head = self._shared = None
        self._sockets = {}

    @property
    def _watch(self) -> Supervisor:
        assert self._supervisor is not None, "nothing is started yet"
        return self._supervisor

    @property
    def _maker(self) -> Spawner:
        assert self._spawner is not None, "nothing is started yet"
        return self._spawner


def _resolved_models(config: DictConfig, plans: list[ServerPlan]) -> dict[str, Any]:
    """The model servers' blocks with their `${…}` resolved; one that can't be is left for its server to complain of."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    resolved = {}
    for plan in plans:
        with contextlib.suppress(OmegaConfBaseException):
            resolved[plan.name] = OmegaConf.to_container(config[plan.name], resolve=True)
    return resolved
