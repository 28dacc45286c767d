"""What a process says about the requests it is answering."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.instances import BaseServerConfig
from nemo_gym.serve.client import BaseServerClient
from nemo_gym.serve.control_socket import RefusedError
from nemo_gym.serve.in_flight import (
    MOST_ROWS,
    ROLLOUT_HEADER,
    InFlightMiddleware,
    Table,
    current_rollout,
    waiting_for,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def _no_message(*_: Any) -> Any:
    return None


class Server:
    """A server whose handler waits until it is let go."""

    def __init__(self, table: Table, name: str = "mcqa", **options: Any) -> None:
        self.release = asyncio.Event()
        self.seen: list[str | None] = []
        self.inside: Callable[[], Awaitable[Any]] = self.release.wait
        self.app = InFlightMiddleware(self._handle, server=table.add_server(name, **options))

    async def _handle(self, *_: Any) -> None:
        self.seen.append(current_rollout())
        await self.inside()

    async def begin(self, path: str, **headers: str) -> asyncio.Task[None]:
        pairs = [(name.lower().replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "path": path, "headers": [(b"host", b"h"), *pairs]}
        task = asyncio.create_task(self.app(scope, _no_message, _no_message))
        await asyncio.sleep(0)
        return task


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_requests_are_listed_while_they_are_answered_oldest_first(clock: Clock) -> None:
    """B32: the one that is stuck stands first, with its rollout and its age."""
    table = Table(clock)
    server = Server(table, sessions=lambda: 7)
    first = await server.begin("/verify", x_nemo_gym_rollout="17-2")
    clock.now += 300
    second = await server.begin("/seed_session", x_nemo_gym_rollout="3-0-a1")
    clock.now += 12
    told = table.snapshot()
    assert [(r["path"], r["rollout"], r["age_s"]) for r in told["requests"]] == [
        ("/verify", "17-2", 312.0),
        ("/seed_session", "3-0-a1", 12.0),
    ]
    assert told["servers"]["mcqa"] == {
        "in_flight": 2,
        "oldest_s": 312.0,
        "served": 0,
        "sessions": 7,
        "paths": {"/verify": 1, "/seed_session": 1},
    }
    server.release.set()
    await asyncio.gather(first, second)
    told = table.snapshot()
    assert told["requests"] == []
    assert (told["servers"]["mcqa"]["served"], told["servers"]["mcqa"]["oldest_s"]) == (2, None)
    assert told["servers"]["mcqa"]["paths"] == {}


async def test_a_request_that_fails_or_is_cancelled_leaves_the_table(clock: Clock) -> None:
    table = Table(clock)
    server = Server(table)
    task = await server.begin("/verify")
    task.cancel()
    await asyncio.wait([task])

    async def fail() -> None:
        raise ValueError

    server.inside = fail
    await asyncio.wait([await server.begin("/verify")])
    assert table.snapshot()["requests"] == []
    assert current_rollout() is None


async def test_the_code_that_answers_knows_the_rollout() -> None:
    server = Server(Table())
    server.release.set()
    await (await server.begin("/verify", x_nemo_gym_rollout="17-2"))
    await (await server.begin("/verify"))
    await (await server.begin("/ng-rollout/5-1/v1/responses"))
    assert server.seen == ["17-2", None, "5-1"]


async def test_the_prefix_of_a_captured_call_is_no_part_of_its_path() -> None:
    table = Table()
    server = Server(table)
    task = await server.begin("/ng-rollout/5-1/v1/responses")
    assert [(r["path"], r["rollout"]) for r in table.snapshot()["requests"]] == [("/v1/responses", "5-1")]
    server.release.set()
    await task


async def test_only_the_oldest_are_told_of_and_all_are_counted() -> None:
    table = Table()
    server = Server(table)
    tasks = [await server.begin("/verify", x_nemo_gym_rollout=f"{number}-0") for number in range(30)]
    told = table.snapshot(limit=2)
    assert [request["rollout"] for request in told["requests"]] == ["0-0", "1-0"]
    assert told["servers"]["mcqa"]["in_flight"] == 30
    named = table.snapshot(rollouts=["29-0", "7-0", "99-0"])
    assert [request["rollout"] for request in named["requests"]] == ["7-0", "29-0"]
    assert table.snapshot(limit=-1)["requests"] == [] and MOST_ROWS >= 30
    server.release.set()
    await asyncio.gather(*tasks)


async def test_a_request_tells_whom_it_waits_for(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """B30, B32: where the called server says nothing any more, its caller does."""
    monkeypatch.setattr("time.monotonic", clock)
    table = Table(clock)
    server = Server(table, "agent")

    async def call() -> None:
        with waiting_for("mcqa", "/seed_session"):
            clock.now += 5
        with waiting_for("policy_model", "/v1/responses"):
            clock.now += 5
            await server.release.wait()

    server.inside = call
    task = await server.begin("/run", x_nemo_gym_rollout="1-0")
    clock.now += 1
    (request,) = table.snapshot()["requests"]
    assert request["calls"] == [{"server": "policy_model", "path": "/v1/responses", "age_s": 6.0}]
    server.release.set()
    await task
    with waiting_for("policy_model", "/v1/responses"):
        assert table.snapshot()["requests"] == []


async def test_a_table_answers_one_operation() -> None:
    table = Table()
    table.add_server("a")
    assert table.answer("in_flight", {"limit": 5})["servers"]["a"]["in_flight"] == 0
    with pytest.raises(RefusedError, match="in_flight"):
        table.answer("pause", {})


class Client(BaseServerClient):
    """Keeps what would be sent."""

    async def _send(self, method: str, url: str, server_name: str, options: dict[str, Any]) -> Any:
        sent.append((url, dict(options.get("headers") or {}).get(ROLLOUT_HEADER)))


sent: list[tuple[str, str | None]] = []


@pytest.fixture
def client() -> Client:
    sent.clear()
    blocks = {
        name: {kind: {name: {"host": "127.0.0.1", "port": port}}}
        for name, kind, port in (("agent", "responses_api_agents", 1), ("policy", "responses_api_models", 2))
    }
    config = OmegaConf.create(blocks)
    return Client(head_server_config=BaseServerConfig(host="127.0.0.1", port=9), global_config_dict=config)


@pytest.mark.parametrize(
    ("body", "rollout"),
    [
        ({"_ng_task_index": 17, "_ng_rollout_index": 2}, "17-2"),
        ({"_ng_task_index": 17, "_ng_rollout_index": 2, "_ng_attempt_index": 1}, "17-2-a1"),
        ({"_ng_rollout_id": "17-2.r1", "_ng_task_index": 17, "_ng_rollout_index": 2}, "17-2.r1"),
        ({"episode_id": {"rollout_id": "17-2", "attempt": 3}}, "17-2-a3"),
        ({"_ng_rollout_id": "no / id"}, None),
        ({}, None),
    ],
)
async def test_a_collector_sends_the_rollout_along(client: Client, body: dict[str, Any], rollout: str | None) -> None:
    await client.post("agent", "/run", json=body)
    assert sent == [("http://127.0.0.1:1/run", rollout)]


async def test_every_further_hop_has_the_rollout_of_its_request(client: Client) -> None:
    server = Server(Table())
    given = {"X-Other": "1"}

    async def call() -> None:
        await client.post("policy", "/v1/responses", json={"_ng_task_index": 9, "_ng_rollout_index": 9}, headers=given)

    server.inside = call
    await (await server.begin("/run", x_nemo_gym_rollout="17-2"))
    await (await server.begin("/run"))
    assert [rollout for _, rollout in sent] == ["17-2", None]
    assert given == {"X-Other": "1"}
