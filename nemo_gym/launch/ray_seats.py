"""The actors of a run with `placement: ray`: one for each server, placed anew when it or its node is lost."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym.config.roots import IS_EDITABLE_INSTALL, PARENT_DIR
from nemo_gym.errors import GymError
from nemo_gym.launch.addresses import endpoint_of
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.logs import open_log
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.ray_nodes import Node, Nodes, on_node
from nemo_gym.launch.ray_seat import Addresses, News, Seat, SeatOrder, carried_variables
from nemo_gym.launch.sockets import PortRange
from nemo_gym.launch.venvs import Venv

SEAT_SECONDS = 60.0
START_SECONDS = 180.0
NEWS_SECONDS = 2.0
ANSWER_SECONDS = 30.0
"""An actor that says nothing for so long is lost, and its node is avoided."""
UNREACHABLE_SECONDS = 5.0
"""The same for one whose process refuses connections."""
_RETRY_SECONDS = 0.5
_STOP_MARGIN_SECONDS = 5.0
_EVERYWHERE = ("0.0.0.0", "::")


class RemoteProcess(ServerProcess):
    """A server on some node; its pid is 0 until that is known. `settled` is set once it runs, or has ended."""

    is_remote: ClassVar[bool] = True

    def __init__(self, name: str, args: list[str]) -> None:
        super().__init__(name, args, 0)
        self.actor: Any = None
        self.settled = threading.Event()

    @property
    def was_lost(self) -> bool:
        """Never with all others at once: what starts servers here is on several nodes."""
        return False

    def send_signal(self, number: int) -> None:
        """Have it signalled; nothing happens when it, or its node, is gone."""
        if self.returncode is None and self.actor is not None:
            with contextlib.suppress(Exception):
                self.actor.send_signal.remote(int(number))


@dataclass(eq=False)
class Placed:
    """An actor with its server's address; `log_end` is how much of the log was taken over.

    `is_lost` says that nothing can be started there any more, `is_node_lost` that its node is given up.
    """

    plan: ServerPlan
    node: Node
    actor: Any
    host: str
    port: int = 0
    log_end: int = 0
    is_lost: bool = False
    is_node_lost: bool = False


@dataclass
class RaySeats:
    """`announce` is told where servers are, whenever that changes; `config` is the run's config as text.

    `logs` has a file here for each server, to which what it writes is appended. `report` gets sentences.
    """

    nodes: Nodes
    plans: Sequence[ServerPlan]
    venvs: Mapping[Path, Venv]
    token: str
    ports: PortRange
    uv_variables: Mapping[str, str]
    logs: Mapping[str, Path]
    config: Callable[[], str]
    announce: Callable[[Mapping[str, tuple[str, int]]], None]
    on_death: Callable[[ServerProcess], None]
    report: Callable[[str], None]

    def __post_init__(self) -> None:
        self._ray = self.nodes.ray
        self._run = secrets.token_hex(4)
        self._placed: dict[str, Placed] = {}
        self._seats_taken = 0
        self._number = 0
        self._placing = threading.Lock()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def take_all(self) -> None:
        """Place an actor for every server, and announce where they listen. Raises LaunchError."""
        chosen: dict[str, Node] = {}
        for plan in self.plans:
            chosen[plan.name] = self._choose([node.id for node in chosen.values()], plan)
        self.nodes.check_paths(self._paths_by_node(chosen))
        self._placed = self._seat_all(chosen)
        self._number += 1
        self.announce(self.addresses())

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port by server."""
        return {name: (placed.host, placed.port) for name, placed in self._placed.items()}

    def node_of(self, name: str) -> str:
        """The address of the node that a server is on."""
        return self._placed[name].node.address

    def start(self, name: str, generation: int, ready: int) -> RemoteProcess:
        """Start a server, on another node if its actor is gone; `ready` gets a byte once it serves, and is closed."""
        plan = self._placed[name].plan
        process = RemoteProcess(name, [str(self.venvs[plan.directory].python), str(plan.entrypoint)])
        self._in_thread(f"gym-ray-{name}", lambda: self._run_server(process, generation, ready))
        return process

    def close(self, grace: float) -> None:
        """End all servers and their actors. Returns when nothing is left of those that can be reached."""
        self._closing.set()
        alive = [placed for placed in list(self._placed.values()) if not placed.is_lost]
        self._ask_all((placed.actor.stop.remote(grace) for placed in alive), grace + _STOP_MARGIN_SECONDS)
        for thread in self._threads:
            thread.join(_STOP_MARGIN_SECONDS)
        self._ask_all((placed.actor.clear.remote() for placed in alive), _STOP_MARGIN_SECONDS)
        for placed in alive:
            self._dismiss(placed)

    def _choose(self, taken: Iterable[str], plan: ServerPlan, avoided: Iterable[str] = ()) -> Node:
        node = self.nodes.next(taken, avoided)
        if node is None:
            raise LaunchError(f"No node of the Ray cluster takes {plan.name}: look at `ray status`.")
        return node

    def _paths_by_node(self, chosen: Mapping[str, Node]) -> dict[str, list[str]]:
        wanted: dict[str, list[str]] = {}
        for plan in self.plans:
            paths = [sys.executable, str(self.venvs[plan.directory].python), str(plan.entrypoint)]
            known = wanted.setdefault(chosen[plan.name].id, [])
            known += [path for path in paths if path not in known]
        return wanted

    def _seat_all(self, chosen: Mapping[str, Node]) -> dict[str, Placed]:
        """New actors for servers on the chosen nodes, or others where those don't take them."""
        plans = {plan.name: plan for plan in self.plans}
        called = [self._call_up(plans[name], node) for name, node in chosen.items()]
        seated = {}
        for placed, port in called:
            try:
                seated[placed.plan.name] = self._seated(placed, port)
            except _NodeLostError:
                seated[placed.plan.name] = self._place(placed.plan, placed.node)
        return seated

    def _place(self, plan: ServerPlan, but: Node) -> Placed:
        """A new actor for a server, on whichever node takes it."""
        tried = [but.id]
        while True:
            node = self._choose((placed.node.id for placed in self._placed.values()), plan, tried)
            tried.append(node.id)
            try:
                return self._seated(*self._call_up(plan, node))
            except _NodeLostError:
                continue

    def _call_up(self, plan: ServerPlan, node: Node) -> tuple[Placed, Any]:
        """An actor on a node, and the reference to the port it will listen on."""
        own = endpoint_of(plan)
        host = own.host if own.host in _EVERYWHERE else self.nodes.bound_host(node)
        self._seats_taken += 1
        order = SeatOrder(
            plan=plan,
            venv=self.venvs[plan.directory],
            folder=f"ray-{self._run}-{self._seats_taken}",
            token=self.token,
            variables=carried_variables(os.environ),
            uv_variables=self.uv_variables,
            endpoint=replace(own, host=host, port=0 if own.may_move else own.port),
            ports=self.ports,
        )
        remote = self._ray.remote(Seat).options(
            num_cpus=0,
            max_concurrency=8,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=on_node(node.id),
            runtime_env={"py_executable": sys.executable, "env_vars": _import_variables()},
        )
        actor = remote.remote(order)
        return Placed(plan, node, actor, self.nodes.bound_host(node)), actor.sit_down.remote()

    def _seated(self, placed: Placed, port: Any) -> Placed:
        try:
            placed.port = self._ray.get(port, timeout=SEAT_SECONDS)
        except GymError as error:
            self._dismiss(placed)
            raise _plain(error) from error
        except self._ray.exceptions.RayError as error:
            self._dismiss(placed)
            self.nodes.doubt(placed.node)
            self.report(f"Node {placed.node.address} takes no actor for {placed.plan.name} ({_short(error)}).")
            raise _NodeLostError from error
        return placed

    def _run_server(self, process: RemoteProcess, generation: int, ready: int) -> None:
        try:
            placed = self._seat_for(process)
            process.actor = placed.actor
            arguments = (self.config(), self._as_told(), generation)
            process.pid = self._ray.get(placed.actor.start.remote(*arguments), timeout=START_SECONDS)
            process.settled.set()
            self._follow(placed, process, ready)
        except GymError as error:
            process.end_with(1, f"couldn't be started ({_plain(error)})")
        except self._ray.exceptions.RayTaskError as error:
            process.end_with(1, f"couldn't be started ({_short(error.cause)})")
        except self._ray.exceptions.RayError as error:
            self._lose(placed, process, error)
        finally:
            os.close(ready)
            process.settled.set()
        if not self._closing.is_set():
            self.on_death(process)

    def _seat_for(self, process: RemoteProcess) -> Placed:
        """Its seat, a new one if the old is lost: then all that were on a lost node move at once."""
        with self._placing:
            placed = self._placed[process.name]
            if placed.is_lost:
                placed = self._move(placed)
        return placed

    def _move(self, placed: Placed) -> Placed:
        gone = [placed]
        if placed.is_node_lost:
            others = (other for other in self._placed.values() if other is not placed)
            gone += [other for other in others if other.node.id == placed.node.id]
        for each in gone:
            each.is_lost, each.is_node_lost = True, placed.is_node_lost
            self._dismiss(each)
        staying = [each.node.id for each in self._placed.values() if each not in gone]
        chosen: dict[str, Node] = {}
        for each in gone:
            taken = [*staying, *(node.id for node in chosen.values())]
            chosen[each.plan.name] = self._choose(taken, each.plan)
        moved = self._seat_all(chosen)
        if self._closing.is_set():
            for each in moved.values():
                self._dismiss(each)
            raise LaunchError("the run is ending")
        self._placed |= moved
        self._number += 1
        self.announce(self.addresses())
        for name, each in moved.items():
            self.report(f"{name} moves to node {each.node.address} from {placed.node.address}.")
        told = self._as_told()
        for each in self._placed.values():
            if not each.is_lost and each.plan.name not in moved:
                each.actor.tell.remote(told)
        return moved[placed.plan.name]

    def _as_told(self) -> Addresses:
        return Addresses(self._number, addresses_text(self.addresses()))

    def _follow(self, placed: Placed, process: RemoteProcess, ready: int) -> None:
        """Take over what the server writes, until it has ended."""
        log = open_log(self.logs[process.name])
        is_ready = False
        try:
            while process.returncode is None:
                news = self._ask_for_news(placed, is_ready)
                placed.log_end = news.end
                os.write(log, news.log)
                if news.is_ready and not is_ready:
                    is_ready = True
                    with contextlib.suppress(OSError):
                        os.write(ready, b"1")
                if news.words:
                    placed.is_lost = True
                    self._dismiss(placed)
                if news.returncode is not None:
                    process.end_with(news.returncode, news.words)
        finally:
            os.close(log)

    def _ask_for_news(self, placed: Placed, is_ready: bool) -> News:
        """Raises RayError when the actor is lost."""
        refused_since: float | None = None
        while True:
            asked = placed.actor.news.remote(placed.log_end, NEWS_SECONDS, is_ready)
            try:
                news: News = self._ray.get(asked, timeout=NEWS_SECONDS + ANSWER_SECONDS)
                return news
            except self._ray.exceptions.ActorUnavailableError:
                now = time.monotonic()
                refused_since = refused_since or now
                if now - refused_since > UNREACHABLE_SECONDS or self._closing.is_set():
                    raise
                time.sleep(_RETRY_SECONDS)

    def _lose(self, placed: Placed, process: RemoteProcess, error: Exception) -> None:
        placed.is_lost = True
        self._dismiss(placed)
        is_node_there = isinstance(error, self._ray.exceptions.ActorDiedError) and "node has died" not in str(error)
        placed.is_node_lost = placed.is_node_lost or not is_node_there
        if placed.is_node_lost:
            self.nodes.doubt(placed.node)
        whom = "node" if placed.is_node_lost else "actor on node"
        process.end_with(-signal.SIGKILL, f"was lost with its {whom} {placed.node.address}")

    def _dismiss(self, placed: Placed) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(placed.actor, no_restart=True)

    def _ask_all(self, references: Iterable[Any], seconds: float) -> None:
        with contextlib.suppress(Exception):
            asked = list(references)
            if asked:
                self._ray.wait(asked, num_returns=len(asked), timeout=seconds)

    def _in_thread(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


class _NodeLostError(Exception):
    """A node didn't take an actor."""


def addresses_text(addresses: Mapping[str, tuple[str, int]]) -> str:
    """What the file says that processes look into: `http://host:port` by server."""
    urls = {name: f"http://{f'[{host}]' if ':' in host else host}:{port}" for name, (host, port) in addresses.items()}
    return json.dumps(urls)


def _import_variables() -> dict[str, str]:
    """What an actor's interpreter needs to find this package, where that is run from its tree."""
    found = [str(PARENT_DIR)] if IS_EDITABLE_INSTALL else []
    found += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(found))} if found else {}


def _plain(error: GymError) -> GymError:
    """Without what Ray adds to an error that an actor raised."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, GymError) else error


def _short(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
