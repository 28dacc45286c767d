"""Calls with an idempotency key act once, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from fastapi import FastAPI, Request
from pydantic import PrivateAttr
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym import server_utils
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.config.handover import RUN_DIR_ENV
from nemo_gym.serve import local
from nemo_gym.serve.charges import Charge, write_charge
from nemo_gym.serve.idempotency import REPLAYED_HEADER, IdempotencyMiddleware
from nemo_gym.serve.in_flight import ROLLOUT_HEADER
from nemo_gym.serve.retries import IDEMPOTENCY_HEADER, REPEATED_HEADER, Fault, may_repeat, with_key
from nemo_gym.server_utils import ServerClient, get_response_json, request
from tests.unit.serve.test_requests import CONNECTED
from tests.unit.serve.toys import (
    VERIFY,
    ToyResources,
    call_app,
    client_of,
    config_of,
    http_reply,
    mock_client,
    raw_server,
    read_request,
    resources_config,
    serving,
)

pytestmark = pytest.mark.usefixtures("fresh_client")


class Bank(ToyResources):
    """A server whose tool has an effect that can be counted."""

    _balance: int = PrivateAttr(default=0)
    _verified: int = PrivateAttr(default=0)
    _gate: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)
    _entered: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/deposit")(self.deposit)
        app.post("/slow_deposit")(self.slow_deposit)
        return app

    async def deposit(self, request: Request, body: dict[str, Any]) -> dict[str, int]:
        self._balance += body["amount"]
        return {"balance": self._balance}

    async def slow_deposit(self, body: dict[str, Any]) -> dict[str, int]:
        self._entered.set()
        await self._gate.wait()
        self._balance += body["amount"]
        return {"balance": self._balance}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        self._verified += 1
        return await super().verify(body)


def bank() -> Bank:
    return Bank(config=resources_config(), server_client=mock_client())


def assembled(server: Bank, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The app as `run_webserver` would serve it."""
    monkeypatch.setattr(Bank, "set_ulimit", lambda self: None)
    monkeypatch.setattr(Bank, "prefix_server_logs", lambda self: None)
    return server._assemble(config_of(), is_main=False)


Breaks = Callable[[asyncio.StreamWriter, bytes], Awaitable[bool]]


@asynccontextmanager
async def flaky_road(to: int, breaks: Breaks) -> AsyncIterator[int]:
    """A proxy that brings every request to the port `to`, and asks `breaks` whether its answer gets lost."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while message := await read_request(reader):
            there, back = await asyncio.open_connection("127.0.0.1", to)
            back.write(message.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            answer = await there.read()
            back.close()
            if await breaks(writer, answer):
                break
            writer.write(answer)
            break
        writer.close()

    async with raw_server(connected) as port:
        yield port


def losing(number: int, cut: int = 0) -> Breaks:
    """Loses the first answers, or all of them behind their first `cut` bytes."""
    left = number

    async def breaks(writer: asyncio.StreamWriter, answer: bytes) -> bool:
        nonlocal left
        left -= 1
        if left >= 0 and cut:
            writer.write(answer[:-cut])
            await writer.drain()
        return left >= 0

    return breaks


def client_for(port: int, kind: str = "resources_servers", **block: Any) -> ServerClient:
    config = config_of(("bank", kind, port))
    config.bank[kind].toy.update(block)
    return client_of(config)


async def deposit(client: ServerClient, path: str = "/deposit", **options: Any) -> Any:
    answer = await client.post("bank", path, json={"amount": 5}, **options)
    return await get_response_json(answer)


@pytest.mark.parametrize("cut", [0, 3])
async def test_a_tool_whose_answer_got_lost_acts_once(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    server = bank()
    async with serving(assembled(server, monkeypatch)) as port, flaky_road(port, losing(2, cut)) as road:
        client = client_for(road)
        assert await deposit(client) == {"balance": 5}
        assert server._balance == 5
        assert await deposit(client) == {"balance": 10}, "another call has another key"


async def test_a_verdict_that_got_lost_is_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = bank()
    async with serving(assembled(server, monkeypatch)) as port, flaky_road(port, losing(1)) as road:
        answer = await client_for(road).post("bank", "/verify", json=VERIFY)
        assert (answer.status, server._verified) == (200, 1)
        assert answer.headers[REPLAYED_HEADER] == "1" and (await get_response_json(answer))["reward"] == 1.0


async def test_without_a_key_a_lost_answer_is_the_callers_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    server = bank()
    async with serving(assembled(server, monkeypatch)) as port, flaky_road(port, losing(1)) as road:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await request("POST", f"http://127.0.0.1:{road}/deposit", json={"amount": 5})
    assert server._balance == 5


async def test_a_call_is_joined_by_its_repetition_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks while the tool works; the tool goes on, and the second try waits for it."""
    server = bank()
    async with serving(assembled(server, monkeypatch)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = orjson.dumps({"amount": 5})
        head = (
            f"POST /slow_deposit HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"{IDEMPOTENCY_HEADER}: k\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await server._entered.wait()
        writer.transport.abort()
        again = asyncio.create_task(deposit(client_for(port), "/slow_deposit", headers={IDEMPOTENCY_HEADER: "k"}))
        await asyncio.wait([again], timeout=0.2)
        server._gate.set()
        assert await again == {"balance": 5}
    assert server._balance == 5


async def test_who_gets_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, str]] = []

    async def noted(method: str, url: str, **options: Any) -> None:
        sent.append(options.get("headers") or {})

    monkeypatch.setattr(server_utils, "request", noted)
    for kind in ("resources_servers", "responses_api_agents", "environment_servers"):
        await client_for(1, kind).post("bank", "/x", json={}, headers={"X-Mine": "1"})
        assert sent[-1]["X-Mine"] == "1" and len(sent[-1][IDEMPOTENCY_HEADER]) == 32
    assert len({headers[IDEMPOTENCY_HEADER] for headers in sent}) == 3
    await client_for(1).post("bank", "/x", headers={"x-nemo-gym-idempotency-key": "mine"})
    assert sent[-1] == {"x-nemo-gym-idempotency-key": "mine"}
    await client_for(1, "responses_api_models").post("bank", "/v1/responses", json={})
    await client_for(1).get("bank", "/reverify_mode")
    await client_for(1, num_workers=4).post("bank", "/x")
    assert sent[-3:] == [{}, {}, {}]


async def test_a_call_within_the_process_needs_no_key() -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append({name for name, _ in scope["headers"]})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    client = client_for(1)
    server = local.register("bank", "http://127.0.0.1:1", app)
    try:
        assert await deposit(client) == {}
    finally:
        local.unregister(server)
    assert IDEMPOTENCY_HEADER.lower().encode() not in seen[0]


def test_a_key_allows_another_try_but_no_more_time() -> None:
    keyed = with_key({})
    assert may_repeat(Fault.DROPPED, CONNECTED, "POST", keyed, 0.1)
    assert not may_repeat(Fault.TIMED_OUT, CONNECTED, "POST", keyed, 0.1)


# --- the middleware by itself -----------------------------------------------------------------------------------------


class Echo:
    """Answers with its number of calls, as much as asked for; may be held up."""

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        size = int((await receive())["body"] or b"1")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if size < 0:
            raise RuntimeError("broken")
        await send({"type": "http.response.start", "status": 201, "headers": [(b"x-call", b"%d" % self.calls)]})
        await send({"type": "http.response.body", "body": b"a" * size, "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})


async def ask(
    app: ASGIApp, key: str | None = "k", body: bytes = b"1", *, path: str = "/x", method: str = "POST", cookie: str = ""
) -> tuple[int, str | None, bytes]:
    """Status, number of the call that answered, and body."""
    headers = {IDEMPOTENCY_HEADER.lower(): key} if key else {}
    status, answered, content = await call_app(app, path, body, method=method, headers={**headers, "cookie": cookie})
    return status, answered.get("x-call"), content


async def test_the_first_answer_is_the_answer() -> None:
    app = IdempotencyMiddleware(Echo())
    assert [await ask(app) for _ in range(3)] == [(201, "1", b"ab")] * 3
    assert await ask(app, "other") == (201, "2", b"ab")
    assert (await ask(app, None), await ask(app, None)) == ((201, "3", b"ab"), (201, "4", b"ab"))


async def test_another_path_or_cookie_is_another_call_and_another_body_a_mistake() -> None:
    app = IdempotencyMiddleware(Echo())
    await ask(app)
    assert (await ask(app, path="/y"))[1] == "2"
    assert (await ask(app, cookie="session=1"))[1] == "3"
    assert (await ask(app, body=b"12"))[0] == 422
    assert (await ask(app, body=b"2"))[0] == 422
    assert (await ask(app, method="GET"))[1] == "4"


async def test_a_failure_without_an_answer_is_not_tried_again() -> None:
    echo = Echo()
    app = IdempotencyMiddleware(echo)
    for _ in range(2):
        assert (await ask(app, body=b"-1"))[0] == 409
    assert echo.calls == 1


async def test_a_call_that_cannot_be_repeated_says_why_and_has_its_rollout_run_again() -> None:
    app = IdempotencyMiddleware(Echo(), server="mcqa", kept_bytes=5_000)
    headers = {IDEMPOTENCY_HEADER.lower(): "k"}
    told = []
    for _ in range(2):
        status, answered, body = await call_app(app, "/x", b"-1", headers=headers)
        told.append(body.decode())
        cause = orjson.loads(answered["x-nemo-gym-cause"])
        assert (status, cause["server"], cause["kind"]) == (409, "mcqa", "transport_peer_drop")
    assert told[1].endswith('The answer to this call is lost: it was made before and failed without an answer."}')
    await ask(app, "big", b"3000")
    await ask(app, "bigger", b"4000")
    _, _, body = await call_app(app, "/x", b"3000", headers={IDEMPOTENCY_HEADER.lower(): "big"})
    assert b"was answered before, and the answer is no longer kept" in body and b"never" not in body


async def test_answers_are_dropped_before_keys_are() -> None:
    echo = Echo()
    app = IdempotencyMiddleware(echo, kept_bytes=5_000)
    await ask(app, "big", b"3000")
    await ask(app, "bigger", b"4000")
    assert (await ask(app, "big", b"3000"))[0] == 409
    assert (await ask(app, "bigger", b"4000"))[0] == 201
    assert echo.calls == 2


async def test_keys_are_forgotten_with_age_and_number() -> None:
    now = [0.0]
    echo = Echo()
    app = IdempotencyMiddleware(echo, remembered_seconds=10, remembered_calls=2, clock=lambda: now[0])
    for key in ("a", "b", "c"):
        await ask(app, key)
    assert ((await ask(app, "c"))[1], (await ask(app, "a"))[1]) == ("3", "4")
    now[0] = 10.0
    assert (await ask(app, "c"))[1] == "5"
    assert (len(app._book._calls), len(app._book._ended), len(app._book._kept)) == (1, 1, 1)
    assert app._book._bytes == app._book._calls[(b"c", "/x", b"")].size


async def test_memory_stays_within_its_bounds() -> None:
    app = IdempotencyMiddleware(Echo(), kept_bytes=20_000, remembered_calls=50)
    for number in range(200):
        await ask(app, str(number), b"1000")
    book = app._book
    assert book._bytes <= 20_000 and len(book._calls) == len(book._ended) == 50
    assert sum(call.size for call in book._calls.values() if call.gone is None) == book._bytes


async def test_many_ask_at_once_and_one_works() -> None:
    echo = Echo()
    echo.gate.clear()
    app = IdempotencyMiddleware(echo)
    asking = [asyncio.create_task(ask(app)) for _ in range(5)]
    await asyncio.sleep(0)
    echo.gate.set()
    assert await asyncio.gather(*asking) == [(201, "1", b"ab")] * 5


async def test_a_call_nobody_waits_for_is_given_up_after_a_while() -> None:
    echo = Echo()
    echo.gate.clear()
    app = IdempotencyMiddleware(echo, grace_seconds=0.05)
    first = asyncio.create_task(ask(app))
    await asyncio.wait([first], timeout=0.01)
    first.cancel()
    await asyncio.wait([first])
    again = asyncio.create_task(ask(app))
    await asyncio.wait([again], timeout=0.2)
    assert not echo.cancelled.is_set(), "one waits again"
    again.cancel()
    async with asyncio.timeout(5):
        await echo.cancelled.wait()
    echo.gate.set()
    status, _, text = await ask(app)
    assert status == 409, "nobody knows what it has done"
    assert b"was begun before and given up, unanswered" in text and b"made before" not in text
    assert echo.calls == 1


async def test_a_body_that_never_arrived_is_no_call() -> None:
    echo = Echo()
    app = IdempotencyMiddleware(echo)
    messages: list[Message] = [
        {"type": "http.request", "body": b"1", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    headers = [(IDEMPOTENCY_HEADER.lower().encode(), b"k")]
    await app({"type": "http", "method": "POST", "path": "/x", "headers": headers}, receive, send)
    assert echo.calls == 0


@pytest.mark.parametrize(
    ("is_successor", "is_repeated", "status"), [(True, True, 409), (True, False, 200), (False, True, 200)]
)
async def test_a_successor_does_not_make_the_calls_of_the_process_before_it(
    is_successor: bool, is_repeated: bool, status: int
) -> None:
    """B44: a restarted server knows nothing of the keys of the one that died; whoever asks is told what happened."""
    made = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        made.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    guarded = IdempotencyMiddleware(app, is_successor=is_successor, server="the_agent")
    headers = {IDEMPOTENCY_HEADER: "k", **({REPEATED_HEADER: "1"} if is_repeated else {})}
    async with serving(guarded) as port, aiohttp.ClientSession() as session:
        answer = await session.post(f"http://127.0.0.1:{port}/run", json={}, headers=headers)
        assert answer.status == status
        assert len(made) == (status == 200)
        if status == 409:
            cause = orjson.loads(answer.headers["X-NeMo-Gym-Cause"])
            assert (cause["server"], cause["kind"]) == ("the_agent", "transport_peer_drop")
            assert "Its process ended while this call was under way" in cause["message"]


@pytest.mark.parametrize(
    ("rollout", "is_repeated", "path", "kind"),
    [
        ("5-0", True, "/verify", "verifier_error"),
        ("5-0.r1", False, "/verify", "verifier_error"),
        ("5-0", True, "/look", "transport_timeout"),
        ("5-0", False, "/verify", None),
        ("5-0.r1-a1", False, "/verify", None),
        ("5-1.r1", False, "/verify", None),
    ],
)
@pytest.mark.parametrize("is_successor", [True, False])
async def test_a_rollout_that_got_the_process_before_stuck_is_refused_as_its_failure(
    is_successor: bool,
    rollout: str,
    is_repeated: bool,
    path: str,
    kind: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A4: the call itself, and later tries in place; another attempt, or collection, is another chance."""
    monkeypatch.setenv(RUN_DIR_ENV, str(tmp_path))
    write_charge(tmp_path, Charge("4-0", "s", "resources_servers", "/verify", "another"))
    write_charge(tmp_path, Charge("5-0", "s", "resources_servers", path, "it held its server"))
    app = IdempotencyMiddleware(Echo(), is_successor=is_successor, server="the_agent")
    headers = {IDEMPOTENCY_HEADER.lower(): "k", ROLLOUT_HEADER.lower(): rollout}
    headers |= {REPEATED_HEADER.lower(): "1"} if is_repeated else {}
    status, answered, _ = await call_app(app, "/run", b"1", headers=headers)
    if kind is None or not is_successor:
        assert status == 201
        return
    cause = orjson.loads(answered["x-nemo-gym-cause"])
    assert (status, cause["kind"], cause["server"], cause["message"]) == (409, kind, "s", "it held its server")


async def test_a_repetition_over_a_broken_connection_says_that_it_is_one() -> None:
    seen: list[bytes] = []

    async def drop_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        if len(seen) > 1:
            writer.write(http_reply())
        writer.close()

    async with raw_server(drop_once) as port:
        await request("POST", f"http://127.0.0.1:{port}/run", json={}, headers=with_key(None), _internal=True)
    assert [REPEATED_HEADER.encode() in each for each in seen] == [False, True]
