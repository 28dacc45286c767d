"""A whole run: started in order, watched, ended in order."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from nemo_gym.config.errors import NoServerInstancesError
from nemo_gym.config.handover import write_config
from nemo_gym.config.instances import server_instances
from nemo_gym.config.keys import TELEMETRY_KEY_NAME
from nemo_gym.config.notices import notify, warn
from nemo_gym.config.placement import Mode, set_placed_shards
from nemo_gym.launch import detach, ray_cluster
from nemo_gym.launch.addresses import endpoints_of, record_ports
from nemo_gym.launch.control import Control
from nemo_gym.launch.dry_run import wait_until_ended
from nemo_gym.launch.endpoints import EndpointWait, endpoints_of_run
from nemo_gym.launch.environment import Handover
from nemo_gym.launch.fleet import Fleet, RestartedServers
from nemo_gym.launch.fork_server import take_spawner
from nemo_gym.launch.held import HeldLimits
from nemo_gym.launch.logs import LogConsole
from nemo_gym.launch.placement import (
    SharedSet,
    bind_shards,
    logs_by_server,
    shard_name,
    shared_members,
    why_no_shards,
    why_not_by_itself,
    within_limits,
)
from nemo_gym.launch.plan import ServerPlan, ensure_venvs, plan_servers
from nemo_gym.launch.port_owner import port_owner
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.readiness import Readiness
from nemo_gym.launch.records import display_records, instance_table, numbered
from nemo_gym.launch.restarts import RestartBook, Reviver
from nemo_gym.launch.run_directory import RunDirectory
from nemo_gym.launch.second_start import SecondStart
from nemo_gym.launch.settings import LaunchSettings
from nemo_gym.launch.signals import deaf, stop_signals
from nemo_gym.launch.sockets import close_all, listen_all
from nemo_gym.launch.spawner import Spawner
from nemo_gym.launch.status import ServerStatus, probe_url
from nemo_gym.launch.supervisor import Supervisor
from nemo_gym.launch.venvs import Venv, VenvSettings
from nemo_gym.serve.limits import raise_open_files
from nemo_gym.serve.stages import stage_seconds
from nemo_gym.telemetry.memory import WatchedServer
from nemo_gym.telemetry.orchestrator import RunTelemetry

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nemo_gym.launch.head import RunningHead
    from nemo_gym.launch.ray_seats import RaySeats

POLL_SECONDS = 60
LOOK_SECONDS = 1.0
"""The kernel may hand a signal to any thread; the main one, which has to act on it, sees it when it wakes."""
STOP_GRACE_SECONDS = 5.0
HEAD = "head_server"


class Launch:
    """The servers of one composed config.

    `output` gets the lines that people and scripts wait for, `server_output` what the servers write, each line with its
    server's name (None shows nothing; the log files have it all). `records` are those of `/server_instances`. How often
    a server that ends by itself is started again, and where servers are placed, are what the config says, else
    `restarts` within ten minutes, and `placement`. With `head_may_move` a head server whose port nobody set takes
    another one where that is taken.
    """

    def __init__(
        self,
        config: DictConfig,
        *,
        output: Callable[[str], None] = print,
        server_output: TextIO | None = None,
        restarts: int = 0,
        placement: Mode = "process",
        head_may_move: bool = False,
    ) -> None:
        self.config = config
        self.output = output
        self.server_output = server_output
        self.settings = LaunchSettings.from_config(config, placement=placement, restarts=restarts)
        self.plans: list[ServerPlan] = []
        self.records: list[dict[str, Any]] = []
        self.head: RunningHead | None = None
        self._head_may_move = head_may_move
        self._spawner: Spawner | None = None
        self._supervisor: Supervisor | None = None
        self._sockets: dict[str, socket.socket] = {}
        self._directory: RunDirectory | None = None
        self._console: LogConsole | None = None
        self._readiness: Readiness | None = None
        self._leave_ray: Callable[[], None] | None = None
        self._telemetry = RunTelemetry()
        self._addresses: dict[str, tuple[str, int]] = {}
        self._seats: RaySeats | None = None
        self._watched: dict[str, WatchedServer] = {}
        self._fleet: Fleet | None = None
        self._reviver: Reviver | None = None
        self._second_start: SecondStart | None = None
        self._control: Control | None = None
        self._endpoint_wait: EndpointWait | None = None
        self._recording = threading.Lock()

    @property
    def processes(self) -> dict[str, ServerProcess]:
        """The server processes by instance name; servers that share processes have that of their first copies."""
        if (fleet := self._fleet) is None:
            return {}
        found = ((plan.name, fleet.process_of(plan.name)) for plan in self.plans)
        return {name: process for name, process in found if process is not None}

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
        """Raise ServerFailedError or LaunchError when a server or the head server has ended. Any thread may ask.

        After a dry run all of them have, and nothing is wrong.
        """
        if self.settings.dry_run:
            return
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
                    supervisor.wait_for_death(LOOK_SECONDS)
        except KeyboardInterrupt:
            return
        finally:
            self.shutdown()

    def shutdown(self) -> None:
        """End all of it: TERM to each server, a shared grace, KILL for what is left. Safe to call again."""
        steps = [
            *([self._control.stop] if self._control is not None else []),
            *([self._reviver.stop] if self._reviver is not None else []),
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
        endpoints = endpoints_of(self.plans, self.settings, head_may_move=self._head_may_move)
        own = [] if self._is_spread else self.plans
        self._sockets = listen_all(endpoints[: len(own) + 1], self.settings.ports)
        self._take_head_port(self._sockets[HEAD].getsockname()[1])
        record_ports(self.config, own, self._sockets)
        self._addresses = {plan.name: (plan.instance.host, self._sockets[plan.name].getsockname()[1]) for plan in own}
        handover = self._prepare(self._sockets[HEAD].getsockname()[1])
        venvs = self._ensure_venvs()
        shared = self._share(venvs, handover)
        self._enter_ray()
        self._spread(venvs)
        write_config(handover.config_file, self.config)
        self._start_head()
        self._spawn_all(venvs, handover, shared)
        self._publish()
        self._open_control()
        self.wait_until_ready()
        self._watch_for_deaths()
        self.wait_for_models()
        if self.head is not None:
            self.head.mark_ready()
        self._watched |= self._watchable()
        self._telemetry.ready(self._watched)
        detach.announce_ready()

    def _watch_for_deaths(self) -> None:
        """All of them serve: from now on the reviver has the deaths, and those that nobody took up in time."""
        if self._reviver is not None:
            self._reviver.watch(self._watch)
        for process in self._second_start.left() if self._second_start is not None else ():
            self._watch.note_death(process)

    def _take_head_port(self, port: int) -> None:
        wanted = self.settings.head_port
        if port != wanted:
            self.settings = replace(self.settings, head_port=port)
            owner = port_owner(wanted)
            by = "another process" if owner is None else f"pid {owner.pid} ({owner.command})"
            notify(f"port {wanted} is taken by {by}, so this run has port {port}: `gym ps --port {port}` shows it.")

    def _watchable(self) -> dict[str, WatchedServer]:
        types = {plan.name: plan.instance.server_type for plan in self.plans}
        here = {name: process for name, process in self._watch.processes.items() if not process.is_remote}
        return {name: WatchedServer(types.get(name, "shared"), process.pid) for name, process in here.items()}

    @property
    def _is_spread(self) -> bool:
        return self.settings.placement.mode == "ray" and not self.settings.dry_run

    def _spread(self, venvs: dict[Path, Venv]) -> None:
        """Take an actor on some node for every server, where that is asked for."""
        if not self._is_spread or self._directory is None:
            return
        from nemo_gym.launch import ray_placement

        parts = (self.config, self.plans, venvs, self.settings, self._directory, self._watch)
        self._seats = ray_placement.take_seats(*parts, self._note_moved)
        ray_placement.check_endpoints(self._seats, endpoints_of_run(self.config, self.plans))
        self.output(ray_placement.summary(self._seats))

    def _note_moved(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        self._addresses = dict(addresses)
        if self.head is not None:
            self.head.head.forget_config_texts()

    def _share(self, venvs: dict[Path, Venv], handover: Handover) -> SharedSet | None:
        """Decide which servers share processes, and bind the sockets of their further copies."""
        placement = self.settings.placement
        if placement.mode in ("process", "ray"):
            return None
        is_auto = placement.mode == "auto"
        problem = why_no_shards(self._maker, handover)
        if problem is None and is_auto:
            problem = why_not_by_itself(self.config, self.plans, venvs, self._maker.facts())
            placement = within_limits(placement, self.plans)
        members = [] if problem else shared_members(self.plans, venvs, self._maker.facts())
        if not members:
            reason = problem or "none that rollouts are sent to may share one"
            self.output(f"Every server has a process of its own: {reason}.")
            return None
        raise_open_files()
        shared = bind_shards(members, placement, self._sockets, self.settings.ports)
        for index, shard in enumerate(shared.listeners[1:], start=1):
            self._sockets |= {f"{shard_name(index)} {name}": bound for name, bound in shard.items()}
        set_placed_shards(self.config, shared.ports)
        self._watch.titles = {shard_name(k): shared.title(k) for k in range(placement.shards)}
        by_itself = "shared, as all of them allow; +placement=process gives each its own"
        self.output(f"{shared.summary} (placement: {by_itself if is_auto else 'shared'})")
        return shared

    def _construct(self) -> None:
        """A dry run: every server is built and constructed in its own process, which then ends."""
        handover = self._prepare(f"dry-run-{os.getpid()}")
        venvs = self._ensure_venvs()
        self._enter_ray()
        write_config(handover.config_file, self.config)
        self._spawn_all(venvs, handover, None)
        self.wait_until_constructed()
        self.output(f"Dry run: all {len(self.plans)} / {len(self.plans)} servers were built.")
        detach.announce_ready()

    def _prepare(self, folder: int | str) -> Handover:
        """The run's folder, its logs, and who watches what."""
        directory = self._directory = RunDirectory.create(folder)
        detach.adopt_log(directory.path)
        is_shared = self.settings.placement.mode in ("shared", "auto")
        shards = range(self.settings.placement.shards if is_shared else 0)
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
        is_used = any(plan.needs_ray for plan in self.plans)
        if self._is_spread or ray_cluster.is_wanted(self.plans, self.config):
            self._leave_ray = ray_cluster.connect(self.config, shows_logs=is_used)

    def _start_head(self) -> None:
        from nemo_gym.launch.head import start_head

        if self._directory is not None:
            bound = self._sockets.pop(HEAD)
            self.head = start_head(self.config, self.settings.head_host, bound, self._directory)

    def _spawn_all(self, venvs: dict[Path, Venv], handover: Handover, shared: SharedSet | None) -> None:
        readiness = self._readiness = Readiness(self._watch, self._note_ready, self.output)
        problem = self._maker.facts().problem
        if problem is not None:
            self.output(f"Servers start slowly, each importing by itself: {problem}")
        restarts = self.settings.restarts
        parts = (self.plans, venvs, handover, self._maker, self._watch, self._sockets, shared, restarts > 0)
        fleet = self._fleet = Fleet(*parts) if self._seats is None else _ray_fleet(parts, self._seats)
        servers = RestartedServers(fleet, self._watch, self._record_restart)
        self._reviver = Reviver(RestartBook(restarts), servers, warn, seconds_to_start=self.settings.spinup_seconds)
        if self._reviver.is_on:
            second = SecondStart(fleet.start_once_more, self._watch.describe, self._watch.wake, warn)
            self._second_start, readiness.again = second, second.begin
            self._watch.hand_over(second.take)
        fleet.start_all(readiness, self.output if self.config.get("verbose") else _nobody_asks)

    def _record_restart(self, name: str) -> None:
        """A process has taken another's place: whoever lists servers is told."""
        with self._recording:
            self._publish()
            self._watched |= self._watchable()

    def _open_control(self) -> None:
        if self._directory is not None and self._fleet is not None and self._reviver is not None:
            types = {plan.name: plan.instance.server_type for plan in self.plans}
            limits = HeldLimits(self.settings.stuck_seconds, stage_seconds(self.config), types)
            self._control = Control(self._directory.path, self._fleet, self._reviver, limits, self._waits)
            self._control.start()

    def _waits(self) -> list[dict[str, Any]]:
        return [] if self._endpoint_wait is None else self._endpoint_wait.waiting()

    def _publish(self) -> None:
        pids = {name: process.pid for name, process in self.processes.items()}
        self.records = display_records(self.plans, self._addresses, pids, self.records)
        if self.head is not None:
            self.head.set_instances(self.records)
        if self._directory is not None:
            shared = None if self._fleet is None else self._fleet.shared
            logs = logs_by_server(self._watch.logs, shared)
            self._directory.publish(self.settings.head_host, self.settings.head_port, self.records, logs)

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
        if self._fleet is not None:
            self._fleet.note_ready(name)

    def wait_for_models(self) -> None:
        """Return when the endpoints that model servers call answer. Raises ConfigError naming the silent ones."""
        if self.settings.endpoint_seconds > 0:
            wait = self._endpoint_wait = EndpointWait(self.output, self._pause, lambda text: self.redact(text))
            wait.wait(endpoints_of_run(self.config, self.plans), self.settings.endpoint_seconds)

    def _pause(self, seconds: float) -> None:
        self._watch.wait_for_death(seconds)
        self.poll()

    def wait_until_constructed(self) -> None:
        """Return when every process of a dry run has ended well. Raises ServerFailedError or ServersLateError."""
        wait_until_ended(self.processes, self.settings.spinup_seconds, self._watch.describe)

    def _end_servers(self) -> None:
        if self._spawner is None:
            return
        alive = [process for process in self.processes.values() if process.returncode is None]
        if self._supervisor is not None:
            self._supervisor.expect_deaths()
        if alive:
            servers = "server" if len(alive) == 1 else "servers"
            self.output(f"Stopping {len(alive)} {servers}, waiting up to {STOP_GRACE_SECONDS:g} s …")
        if self._seats is not None:
            self._seats.close(STOP_GRACE_SECONDS)
        self._spawner.close(STOP_GRACE_SECONDS)
        killed = list(dict.fromkeys(process.name for process in alive if process.returncode == -9))
        if killed:
            self.output(f"Killed, since they didn't stop in time: {', '.join(killed)}")
        if alive:
            self.output("Finished: all servers have stopped.")

    def _forget(self) -> None:
        self._spawner = self._supervisor = self._directory = self._console = self._readiness = self._seats = None
        self._leave_ray = self.head = self._fleet = self._reviver = self._control = self._second_start = None
        self._sockets = {}

    @property
    def _watch(self) -> Supervisor:
        assert self._supervisor is not None, "nothing is started yet"
        return self._supervisor

    @property
    def _maker(self) -> Spawner:
        assert self._spawner is not None, "nothing is started yet"
        return self._spawner


def _nobody_asks(_: str) -> None:
    return


def _ray_fleet(parts: tuple[Any, ...], seats: RaySeats) -> Fleet:
    from nemo_gym.launch.ray_fleet import RayFleet

    return RayFleet(*parts, seats=seats)
