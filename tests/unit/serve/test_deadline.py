"""Time that is left travels with a rollout, and ends whatever still works for it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from fastapi import FastAPI
from pydantic import PrivateAttr

from nemo_gym.schema.episodes import EpisodeId
from nemo_gym.serve import alarms, local
from nemo_gym.serve.deadline import (
    DEADLINE_HEADER,
    DeadlineExceededError,
    deadline,
    is_over,
    seconds_left,
    within_deadline,
)
from nemo_gym.serve.deadline_middleware import DeadlineMiddleware
from nemo_gym.serve.episodes import CleanupContext, run_bounded
from nemo_gym.serve.failures import CAUSE_HEADER, Cause, ExceptionMiddleware
from nemo_gym.serve.retries import IDEMPOTENCY_HEADER, transport_failure_kind
from nemo_gym.server_utils import raise_for_status, request
from tests.unit.serve.toys import (
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


class Slow(ToyResources):
    """Tells what time it has, works forever, or has another server do so."""

    _cancelled: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/left")(self.left)
        app.post("/forever")(self.forever)
        app.post("/relay")(self.relay)
        return app

    async def left(self, body: dict[str, Any]) -> float | None:
        return seconds_left()

    async def forever(self, body: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._cancelled.set()
            raise

    async def relay(self, body: dict[str, Any]) -> None:
        answer = await self.server_client.post("inner", body["path"], json={})
        await raise_for_status(answer)


def slow(name: str, client: Any = None) -> Slow:
    return Slow(config=resources_config(name=name), server_client=client or mock_client())


def assembled(server: ToyResources, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setattr(type(server), "set_ulimit", lambda self: None)
    monkeypatch.setattr(type(server), "prefix_server_logs", lambda self: None)
    return server._assemble(config_of(), is_main=False)


def test_deadlines_nest_and_only_shorten() -> None:
    assert seconds_left() is None and not is_over()
    with deadline(100.0):
        with deadline(None):
            assert 99 < (seconds_left() or 0) <= 100
        with deadline(500.0):
            assert (seconds_left() or 0) <= 100
        with deadline(-1.0):
            assert is_over() and (seconds_left() or 0) < 0
        assert not is_over()
    assert seconds_left() is None


def test_a_request_is_bounded_and_tells_a_little_less() -> None:
    given = {"data": b"x", "headers": {"x-nemo-gym-deadline": "9", "A": "b"}}
    assert within_deadline(given, announce=True) is given
    with deadline(10.0):
        bounded = within_deadline(given, announce=True)
        told = float(bounded["headers"].pop(DEADLINE_HEADER))
        assert 9.4 < told <= 9.5 < bounded["timeout"].total <= 10 and bounded["headers"] == {"A": "b"}
        assert within_deadline({}, announce=False).keys() == {"timeout"}
    assert given == {"data": b"x", "headers": {"x-nemo-gym-deadline": "9", "A": "b"}}
    with deadline(0.0), pytest.raises(DeadlineExceededError):
        within_deadline({}, announce=True)


@pytest.mark.parametrize(
    ("given", "total", "connect"),
    [
        (None, 10, None),
        (3, 3, None),
        (60.0, 10, None),
        (aiohttp.ClientTimeout(total=2, connect=1), 2, 1),
        (aiohttp.ClientTimeout(total=None, connect=1), 10, 1),
        (aiohttp.ClientTimeout(total=60), 10, None),
    ],
)
def test_a_timeout_that_was_given_stays_if_it_is_shorter(given: Any, total: float, connect: float | None) -> None:
    with deadline(10.0):
        timeout = within_deadline({"timeout": given}, announce=False)["timeout"]
    assert timeout.total == pytest.approx(total, abs=0.5) and timeout.connect == connect


async def test_what_was_opened_is_closed_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(assembled(slow("inner"), monkeypatch)) as port:
        client = client_of(config_of(("inner", "resources_servers", port)))
        close = {"resources_session_id": "s", "episode_id": {"rollout_id": "e", "attempt": 0}}
        with deadline(0.0):
            assert (await client.post("inner", "/close_session", json=close)).status == 200
            with pytest.raises(DeadlineExceededError):
                await client.post("inner", "/left", json={})


async def test_cleaning_up_after_an_episode_has_a_limit_of_its_own() -> None:
    cleanup = CleanupContext(EpisodeId(rollout_id="e", attempt=0), 5.0)
    left: list[float | None] = []

    async def note() -> None:
        left.append(seconds_left())

    async def run(cleanup: CleanupContext) -> None:
        cleanup.register_cleanup("note", note)

    with deadline(0.0):
        await run_bounded(run, cleanup, None)
        assert is_over()
    assert left == [None]


async def test_the_receiver_knows_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(assembled(slow("inner"), monkeypatch)) as port:
        client = client_of(config_of(("inner", "resources_servers", port)))
        assert await (await client.post("inner", "/left", json={})).json() is None
        with deadline(60.0):
            assert 59 < await (await client.post("inner", "/left", json={})).json() < 60


async def test_it_reaches_a_server_in_the_same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    server = local.register("inner", "http://127.0.0.1:1", assembled(slow("inner"), monkeypatch))
    client = client_of(config_of(("inner", "resources_servers", 1)))
    try:
        with deadline(60.0):
            assert 59 < await (await client.post("inner", "/left", json={})).json() < 60
        with deadline(0.05), pytest.raises((DeadlineExceededError, aiohttp.ClientResponseError)) as caught:
            await raise_for_status(await client.post("inner", "/forever", json={}))
        assert _kind(caught.value) == "transport_timeout"
    finally:
        local.unregister(server)


def _kind(error: BaseException) -> str | None:
    cause = Cause.of_headers(getattr(error, "headers", None))
    return cause.kind if cause else transport_failure_kind(error)


@pytest.mark.parametrize("path", ["/forever", "/relay"])
async def test_expiry_is_a_504_that_names_where_time_ran_out(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Asked directly or through another server, which had a little more time."""
    innermost = slow("inner")
    async with serving(assembled(innermost, monkeypatch)) as inner_port:
        client = client_of(config_of(("inner", "resources_servers", inner_port)))
        async with serving(assembled(slow("outer", client), monkeypatch)) as outer_port:
            port = inner_port if path == "/forever" else outer_port
            url = f"http://127.0.0.1:{port}{path}"
            answer = await request("POST", url, json={"path": "/forever"}, headers={DEADLINE_HEADER: "0.5"})
            cause = Cause.of_headers(answer.headers)
    assert answer.status == 504 and "deadline" in await answer.json()
    assert cause is not None and (cause.kind, cause.server) == ("transport_timeout", "Slow___inner")
    assert innermost._cancelled.is_set()


async def test_a_server_that_never_answers_costs_the_time_left_and_no_more() -> None:
    seen: list[bytes] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        await read_request(reader)
        writer.close()

    async with raw_server(silent) as port:
        with deadline(0.1), pytest.raises(DeadlineExceededError) as caught:
            await request("GET", f"http://127.0.0.1:{port}/x?secret=1")
    assert transport_failure_kind(caught.value) == "transport_timeout" and "secret" not in str(caught.value)
    assert len(seen) == 1 and DEADLINE_HEADER.lower().encode() not in seen[0].lower(), "strangers are not told"


async def test_nothing_is_sent_when_the_time_is_over() -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("was asked")

    async with raw_server(connected) as port:
        with deadline(0.0), pytest.raises(DeadlineExceededError):
            await request("POST", f"http://127.0.0.1:{port}/x", json={})


async def test_no_pause_outlasts_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second try would be two seconds later."""

    async def dropping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.close()

    monkeypatch.setattr("nemo_gym.serve.retries.random.uniform", lambda low, high: 10.0)
    async with raw_server(dropping) as port:
        with deadline(1.0), pytest.raises(aiohttp.ServerDisconnectedError):
            await request("GET", f"http://127.0.0.1:{port}/x")


async def test_every_try_is_told_what_is_left_then() -> None:
    told: list[float] = []

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await read_request(reader)).lower().split(b"\r\n")
        told.extend(float(line.split(b":")[1]) for line in lines if line.startswith(DEADLINE_HEADER.lower().encode()))
        if len(told) > 1:
            writer.write(http_reply())
        writer.close()

    async with raw_server(twice) as port:
        with deadline(60.0):
            await request("POST", f"http://127.0.0.1:{port}/x", _internal=True, headers={IDEMPOTENCY_HEADER: "k"})
    assert len(told) == 2 and told[0] > told[1]


# --- the middleware by itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["soon", "nan", "inf", ""])
async def test_a_deadline_that_is_no_number_is_the_callers_mistake(value: str) -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("ran")

    status, _, body = await call_app(DeadlineMiddleware(app), "/x", headers={DEADLINE_HEADER.lower(): value})
    assert status == 400 and DEADLINE_HEADER in orjson.loads(body)["detail"]


async def test_what_comes_too_late_is_not_begun() -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("ran")

    guarded = ExceptionMiddleware(DeadlineMiddleware(app), server_label="S___s")
    status, headers, _ = await call_app(guarded, "/x", headers={DEADLINE_HEADER.lower(): "0"})
    assert status == 504 and orjson.loads(headers[CAUSE_HEADER.lower()])["kind"] == "transport_timeout"


async def test_a_handlers_own_timeout_stays_its_own() -> None:
    async def app(*_: Any) -> None:
        raise TimeoutError("the tool took too long")

    guarded = ExceptionMiddleware(DeadlineMiddleware(app), server_label="S___s")
    assert (await call_app(guarded, "/x", headers={DEADLINE_HEADER.lower(): "60"}))[0] == 500


def test_timers_may_be_a_little_early(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("nemo_gym.serve.deadline.time.monotonic", lambda: now[0])
    with deadline(1.0):
        now[0] = 100.995
        assert is_over()
        now[0] = 100.9
        assert not is_over()


async def test_a_deadline_that_was_not_reached_leaves_no_timer() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert alarms.pending() == 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    assert (await call_app(DeadlineMiddleware(app), "/a", headers={DEADLINE_HEADER.lower(): "600"}))[0] == 200
    assert alarms.pending() == 0
