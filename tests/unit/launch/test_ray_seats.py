"""The actors of a run from the launcher's side, without Ray: where they are put, what is taken over, what moves."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.config.instances import server_instances
from nemo_gym.launch import ray_placement
from nemo_gym.launch.placement import base_venv
from nemo_gym.launch.plan import plan_servers
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.ray_fleet import RayFleet
from nemo_gym.launch.ray_nodes import Nodes
from nemo_gym.launch.ray_seat import News
from nemo_gym.launch.ray_seats import RaySeats
from nemo_gym.launch.sockets import PortRange
from nemo_gym.launch.starting import StartedServer
from tests.unit.launch import toys

ADDRESSES = ("10.0.0.1", "10.0.0.2")


def id_of(address: str) -> str:
    """A node's id, in the form that Ray insists on."""
    return address.encode().hex().ljust(56, "0")


class RayError(Exception): ...


class ActorDiedError(RayError): ...


class Actor:
    """Says the news it is given, in order; an exception among them is raised, and nothing is said before it is."""

    def __init__(self, order: Any, port: int) -> None:
        self.order, self.port = order, port
        self.asked: list[tuple[Any, ...]] = []
        self.news_to_tell: queue.Queue[Any] = queue.Queue()

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: Any) -> Any:
            self.asked.append((method, *arguments))
            answers = {"sit_down": self.port, "start": 4000 + self.port}
            return self.news_to_tell.get if method == "news" else answers.get(method)

        return SimpleNamespace(remote=remote)

    def asked_for(self, method: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.asked if call[0] == method]


class FakeRay:
    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.killed: list[Actor] = []
        self.util = SimpleNamespace(get_node_ip_address=lambda: ADDRESSES[0])
        self.exceptions = SimpleNamespace(
            RayError=RayError,
            RayTaskError=KeyError,
            ActorUnavailableError=ConnectionError,
            ActorDiedError=ActorDiedError,
        )

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": id_of(address), "NodeManagerAddress": address, "Alive": True, "Resources": {"CPU": 1.0}}
            for address in ADDRESSES
        ]

    def remote(self, what: Any) -> Any:
        def made(*arguments: Any) -> Any:
            if what is os.path.exists:
                return True
            self.actors.append(Actor(arguments[0], 7000 + len(self.actors)))
            return self.actors[-1]

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=made))

    def get(self, reference: Any, timeout: float) -> Any:
        answer = reference() if callable(reference) else reference
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self, references: list[Any], **_: Any) -> None: ...

    def kill(self, actor: Actor, no_restart: bool) -> None:
        self.killed.append(actor)


class Run:
    """Two servers on two nodes."""

    def __init__(self, root: Path) -> None:
        for name in ("a", "b"):
            toys.add_component(root, name)
        plans = plan_servers(server_instances(toys.config_for(root, "a", "b")))
        ray: Any = FakeRay()
        self.ray: FakeRay = ray
        self.announced: list[dict[str, tuple[str, int]]] = []
        self.deaths: queue.Queue[ServerProcess] = queue.Queue()
        self.said: list[str] = []
        self.logs = {plan.name: root / f"{plan.name}.log" for plan in plans}
        self.seats = RaySeats(
            nodes=Nodes.of_cluster(ray),
            plans=plans,
            venvs={plan.directory: base_venv() for plan in plans},
            token="t",
            ports=PortRange(1, 2),
            uv_variables={},
            logs=self.logs,
            config=lambda: "{}",
            announce=lambda addresses: self.announced.append(dict(addresses)),
            on_death=self.deaths.put,
            report=self.said.append,
        )
        self.seats.take_all()
        self._open: list[int] = []

    def start(self, name: str, generation: int = 0) -> tuple[Any, int]:
        reading, writing = os.pipe()
        self._open.append(reading)
        process = self.seats.start(name, generation, writing)
        assert process.settled.wait(20)
        return process, reading

    def end(self) -> None:
        for actor in self.ray.actors:
            actor.news_to_tell.put(News(b"", 0, False, 0))
        self.seats.close(0.0)
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture
def run(root: Path) -> Iterator[Run]:
    made = Run(root)
    yield made
    made.end()


def test_actors_are_spread_and_everybody_is_told_where(run: Run) -> None:
    assert run.announced == [{"a": ("10.0.0.1", 7000), "b": ("10.0.0.2", 7001)}]
    assert [actor.order.token for actor in run.ray.actors] == ["t", "t"]


def test_news_are_taken_over_once_and_the_end_is_told(run: Run) -> None:
    actor = run.ray.actors[0]
    process, reading = run.start("a", 2)
    assert process.pid == 11000
    ((config, told, generation),) = actor.asked_for("start")
    assert (config, told.number, generation) == ("{}", 1, 2)
    for news in (News(b"one\n", 4, False), News(b"two\n", 8, True), News(b"", 8, True, 3)):
        actor.news_to_tell.put(news)
    assert run.deaths.get(timeout=20) is process and process.returncode == 3
    assert run.logs["a"].read_bytes() == b"one\ntwo\n"
    assert [(since, was_ready) for since, _, was_ready in actor.asked_for("news")] == [
        (0, False),
        (4, False),
        (8, True),
    ]
    assert os.read(reading, 2) == b"1" and os.read(reading, 1) == b""


def test_a_lost_node_is_left_and_the_others_are_told(run: Run) -> None:
    _, other = run.ray.actors
    run.start("b")
    process, _ = run.start("a")
    run.ray.actors[0].news_to_tell.put(ActorDiedError("The node has died."))
    assert run.deaths.get(timeout=20) is process
    assert "was lost with its node 10.0.0.1" in process.describe_end()
    run.start("a", 1)
    assert run.announced[-1] == {"a": ("10.0.0.2", 7002), "b": ("10.0.0.2", 7001)}
    ((told,),) = other.asked_for("tell")
    assert told.number == 2 and '"a": "http://10.0.0.2:7002"' in told.text
    assert run.said == ["a moves to node 10.0.0.2 from 10.0.0.1."]


def test_an_actor_that_died_on_a_node_that_lives_is_replaced_there(run: Run) -> None:
    process, _ = run.start("a")
    run.ray.actors[0].news_to_tell.put(ActorDiedError("it was killed"))
    assert run.deaths.get(timeout=20) is process
    run.start("a", 1)
    assert run.announced[-1]["a"] == ("10.0.0.1", 7002)


def test_actors_end_with_the_run(root: Path) -> None:
    run = Run(root)
    run.start("a")
    run.end()
    for actor in run.ray.actors:
        assert actor.asked_for("stop") and actor.asked_for("clear")
    assert run.ray.killed == run.ray.actors


def test_a_server_that_is_started_again_replaces_its_own_and_knows_how_often() -> None:
    seen: list[Any] = []
    started = StartedServer(SimpleNamespace(), SimpleNamespace(), 7)  # type: ignore[arg-type]

    def start(name: str, variables: dict[str, str]) -> StartedServer:
        seen.append((name, variables))
        return started

    fleet: Any = SimpleNamespace(supervisor=SimpleNamespace(replaces=seen.append), _start=start)
    assert RayFleet.start_again(fleet, "a", 2).ready == 7
    RayFleet.start_again(fleet, "a", 0)
    assert seen == ["a", ("a", {GENERATION_ENV: "2"}), "a", ("a", {})]


def test_seats_have_the_runs_token_and_addresses_are_kept_before_they_are_told(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret of the run")
    (tmp_path / "token").chmod(0o600)
    taken: dict[str, Any] = {}

    def seats(**options: Any) -> Any:
        taken.update(options)
        return SimpleNamespace(take_all=lambda: options["announce"]({"a": ("10.0.0.2", 7)}), close=None)

    monkeypatch.setattr(ray_placement, "RaySeats", seats)
    monkeypatch.setattr(ray_placement, "get_ray", FakeRay)
    config = toys.config_for(root, "a")
    directory: Any = SimpleNamespace(path=tmp_path, config_file=tmp_path / "config.json")
    supervisor: Any = SimpleNamespace(logs={}, note_death=None)
    moved: list[Any] = []

    def told(addresses: Any) -> None:
        kept = (tmp_path / "addresses.json").read_text()
        moved.append((addresses, kept, OmegaConf.to_container(config)["a"]))  # type: ignore[call-overload,index]

    settings: Any = SimpleNamespace(ports=None, uv_variables={})
    ray_placement.take_seats(config, [], {}, settings, directory, supervisor, told)
    assert taken["token"] == "secret of the run"
    ((addresses, kept, block),) = moved
    assert addresses == {"a": ("10.0.0.2", 7)} and kept == '{"a": "http://10.0.0.2:7"}'
    assert (block["resources_servers"]["a"]["host"], block["resources_servers"]["a"]["port"]) == ("10.0.0.2", 7)
    for name in ("addresses.json", "config.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
