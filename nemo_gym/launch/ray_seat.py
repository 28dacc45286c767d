"""What runs in an actor of `placement: ray`: on its node it is to one server what a launcher is to all of a run's.

The server is a process of its own, in its component's venv, forked or exec'd as it would be without Ray; the actor
holds its socket, hands its log on, and the server ends with it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.handover import ADDRESSES_FILE_NAME, GENERATION_ENV, TOKEN_FILE_NAME
from nemo_gym.config.replacing import write_private
from nemo_gym.launch.environment import Handover
from nemo_gym.launch.fork_server import new_spawner
from nemo_gym.launch.leftovers import kill_leftovers
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.run_directory import RunDirectory
from nemo_gym.launch.sockets import Endpoint, PortRange, listen_all
from nemo_gym.launch.spawner import Spawner
from nemo_gym.launch.starting import start_server
from nemo_gym.launch.venvs import Venv

LOG_BYTES_AT_ONCE = 1 << 18
MOST_LOG_BYTES = 16 << 20
"""What has been handed on is dropped here, once there is so much of it."""
_LOOK_SECONDS = 0.1
_NODES_OWN = frozenset({"HOME", "HOSTNAME", "LOGNAME", "PATH", "PWD", "OLDPWD", "SHELL", "TMPDIR", "USER"})
_NODES_OWN_PREFIXES = ("RAY_", "SLURM_", "XDG_", "LD_", "CUDA_", "NEMO_GYM_RUN_", "SSH_")


def carried_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What of a launcher's environment its servers get on any node, API keys above all; the rest is each node's own."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _NODES_OWN and not name.startswith(_NODES_OWN_PREFIXES)
    }


@dataclass(frozen=True)
class SeatOrder:
    """What an actor has to know of its server. `folder` is the name of its folder among those of runs on the node."""

    plan: ServerPlan
    venv: Venv
    folder: str
    token: str
    variables: Mapping[str, str]
    uv_variables: Mapping[str, str]
    endpoint: Endpoint
    ports: PortRange


@dataclass(frozen=True)
class Addresses:
    """Where the run's servers are, in JSON; of two, the one with the higher number is the newer."""

    number: int
    text: str


@dataclass(frozen=True)
class News:
    """What is new about the process `pid`. `log` continues what came before, `end` is where it ends now."""

    log: bytes
    end: int
    is_ready: bool
    returncode: int | None = None
    words: str = ""


class Seat:
    """The actor. Its methods are called from several threads at once."""

    def __init__(self, order: SeatOrder) -> None:
        self._order = order
        self._dropped = 0
        self._addresses = -1
        self._changed = threading.Condition()
        self._process: ServerProcess | None = None
        self._ready = False

    def sit_down(self) -> int:
        """Listen; the port. From here on requests wait for the server. Raises PortTakenError or LaunchError."""
        order = self._order
        os.environ.update(order.variables)
        self._socket = listen_all([order.endpoint], order.ports)[order.endpoint.name]
        self._directory = RunDirectory.create(order.folder)
        write_private(self._directory.path / TOKEN_FILE_NAME, order.token)
        self._log = self._directory.log_file(order.plan.name)
        self._spawner: Spawner = new_spawner()
        self._spawner.own(self._directory.path)
        self._spawner.on_death = self._note
        return int(self._socket.getsockname()[1])

    def start(self, config: str, addresses: Addresses, generation: int) -> int:
        """Start the server, again too, with a config as text; its pid. Raises LaunchError."""
        order, path = self._order, self._directory.path
        self.tell(addresses)
        write_private(self._directory.config_file, config)
        if self._process is not None:
            kill_leftovers(path, [order.plan.name], ())
        variables = {GENERATION_ENV: str(generation)} if generation else {}
        started = start_server(
            order.plan,
            order.venv,
            Handover(self._directory.config_file, path, order.uv_variables),
            self._spawner,
            log=self._log,
            bound=self._socket,
            variables=variables,
        )
        with self._changed:
            self._process, self._ready = started.process, False
        assert started.ready is not None, "it has a socket"
        threading.Thread(target=self._await_ready, args=(started.process, started.ready), daemon=True).start()
        return started.process.pid

    def news(self, since: int, seconds: float, was_ready: bool) -> News:
        """What happened after the first `since` bytes of the log; returns when something did, or after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._is_new(since, was_ready) and time.monotonic() < deadline:
                self._changed.wait(_LOOK_SECONDS)
            process, is_ready = self._process, self._ready
            code = None if process is None else process.returncode
        log = self._read_log(since)
        end = since + len(log)
        if code is not None and process is not None and not self._read_log(end):
            words = process.describe_end() if process.was_lost else ""
            return News(log, end, is_ready, code, words)
        return News(log, end, is_ready)

    def tell(self, addresses: Addresses) -> None:
        """Have the server know where the others are."""
        with self._changed:
            if addresses.number <= self._addresses:
                return
            self._addresses = addresses.number
            write_private(self._directory.path / ADDRESSES_FILE_NAME, addresses.text)

    def send_signal(self, number: int) -> None:
        """Signal the server."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self, grace: float) -> None:
        """End the server: TERM, `grace` seconds, KILL; nothing is left of it but what `news` has to tell."""
        self._spawner.close(grace)
        self._socket.close()

    def clear(self) -> None:
        """Remove its folder."""
        self._directory.remove()

    def _note(self, process: ServerProcess) -> None:
        with self._changed:
            self._changed.notify_all()

    def _await_ready(self, process: ServerProcess, pipe: int) -> None:
        said = os.read(pipe, 1)
        os.close(pipe)
        with self._changed:
            if said and process is self._process:
                self._ready = True
                self._changed.notify_all()

    def _is_new(self, since: int, was_ready: bool) -> bool:
        process = self._process
        if process is not None and process.returncode is not None:
            return True
        return self._ready != was_ready or _size(self._log) + self._dropped > since

    def _read_log(self, since: int) -> bytes:
        try:
            with self._log.open("rb") as file:
                file.seek(since - self._dropped)
                found = file.read(LOG_BYTES_AT_ONCE)
        except OSError:
            return b""
        if not found and since - self._dropped > MOST_LOG_BYTES:
            os.truncate(self._log, 0)  # a line written just now is lost
            self._dropped = since
        return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
