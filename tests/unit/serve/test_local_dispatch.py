"""Calls between servers of one process look like calls over the network, without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import aiohttp
import pytest
from fastapi import BackgroundTasks, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from nemo_gym.serve import alarms, connections, local, local_response
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.local import LocalServer
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from tests.unit.serve.toys import client_of, config_of, serving

variable: ContextVar[str] = ContextVar("variable", default="unset")


class Question(BaseModel):
    text: str
    unset: int = 5


class Neighbour:
    """An app with one route for every thing that may go wrong."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.background = asyncio.Event()
        self.app = app = json_app()
        app.post("/echo")(self.echo)
        app.get("/echo")(self.look)
        app.post("/wait")(self.wait)
        app.post("/raise")(self.fail)
        app.post("/vars")(self.set_variable)
        app.post("/stream")(self.stream)
        app.post("/later")(self.later)
        app.post("/moved")(self.moved)

    async def echo(self, request: Request, response: Response, body: dict[str, Any]) -> dict[str, Any]:
        response.set_cookie("seen", body.get("text", ""))
        response.headers["X-Mark"] = "m"
        return {"body": body, **self.facts(request)}

    async def look(self, request: Request) -> dict[str, Any]:
        return self.facts(request)

    def facts(self, request: Request) -> dict[str, Any]:
        headers = {
            name: value for name, value in request.headers.items() if name in ("host", "x-given", "content-type")
        }
        return {
            "cookies": request.cookies,
            "query": dict(request.query_params),
            "headers": headers,
            "path": request.url.path,
        }

    async def wait(self, body: dict[str, Any]) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def fail(self, body: dict[str, Any]) -> None:
        raise LookupError("no such thing")

    async def set_variable(self, body: dict[str, Any]) -> str:
        before = variable.get()
        variable.set("of the callee")
        return before

    async def stream(self, body: dict[str, Any]) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            for number in range(3):
                yield f"line {number}\n"

        return StreamingResponse(lines(), media_type="text/plain")

    async def later(self, body: dict[str, Any], tasks: BackgroundTasks) -> str:
        async def work() -> None:
            await asyncio.sleep(0)
            self.background.set()

        tasks.add_task(work)
        return "soon"

    async def moved(self, body: dict[str, Any]) -> RedirectResponse:
        return RedirectResponse("/echo", status_code=307)


@pytest.fixture
async def neighbour() -> Neighbour:
    return Neighbour()


def hosted(app: FastAPI, port: int = 1) -> LocalServer:
    return local.register("toy", f"http://127.0.0.1:{port}", app)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    local._servers.clear()


def client(port: int = 1) -> ServerClient:
    return client_of(config_of(("toy", "resources_servers", port)))


async def test_a_local_reply_equals_one_over_the_network(neighbour: Neighbour) -> None:
    async with serving(neighbour.app) as port:
        caller = client(port)
        options: dict[str, Any] = {
            "json": {"text": "hi ä"},
            "cookies": {"a": "b"},
            "headers": {"X-Given": "g"},
            "params": {"q": "1 2"},
        }
        remote = await caller.post("toy", "/echo", **options)
        hosted(neighbour.app, port)
        near = await caller.post("toy", "/echo", **options)
        assert [type(reply).__module__ for reply in (remote, near)] == [connections.__name__, local_response.__name__]
        assert await near.json() == await remote.json() == await get_response_json(near)
        for name in ("status", "ok", "reason", "method", "url", "content_type", "host"):
            assert getattr(near, name) == getattr(remote, name), name
        assert near.headers["x-mark"] == remote.headers["X-Mark"]
        assert near.cookies["seen"].value == remote.cookies["seen"].value
        assert await near.text() == await remote.text()


async def test_get_and_query_in_the_path(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    answer = await (await client().get("toy", "/echo?a=1&b=x%20y#part", params={"c": "3"})).json()
    assert answer["query"] == {"a": "1", "b": "x y", "c": "3"} and answer["path"] == "/echo"
    assert answer["headers"]["host"] == "127.0.0.1:1"


async def test_models_are_sent_without_unset_fields(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    answer = await (await client().post("toy", "/echo", json=Question(text="t"))).json()
    assert answer["body"] == {"text": "t"}


async def test_bytes_are_sent_as_they_are(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    response = await client().post("toy", "/echo", data=b'{"x": 1}', headers={"Content-Type": "application/json"})
    assert (await response.json())["body"] == {"x": 1}


async def test_what_a_handler_raises_is_a_500(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    response = await client().post("toy", "/raise", json={})
    assert response.status == 500 and not response.ok
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(response)
    assert caught.value.status == 500
    assert caught.value.response_content == b"Internal Server Error"  # type: ignore[attr-defined]


async def test_an_app_that_raises_is_a_500_that_tells_why() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise LookupError("no such thing")

    local.register("toy", "http://127.0.0.1:1", broken)
    response = await client().post("toy", "/x", json={})
    assert response.status == 500 and "no such thing" in await response.text()


async def test_unknown_routes_are_404(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    assert (await client().post("toy", "/nothing", json={})).status == 404


async def test_a_timeout_cancels_the_handler(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    with pytest.raises(TimeoutError):
        await client().post("toy", "/wait", json={}, timeout=aiohttp.ClientTimeout(total=0.05))
    async with asyncio.timeout(20):
        await neighbour.cancelled.wait()


async def test_a_cancelled_caller_cancels_the_handler(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    task = asyncio.create_task(client().post("toy", "/wait", json={}))
    await neighbour.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(20):
        await neighbour.cancelled.wait()


async def test_contexts_are_isolated_both_ways(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    variable.set("of the caller")
    assert await (await client().post("toy", "/vars", json={})).json() == "unset"
    assert variable.get() == "of the caller"
    assert await (await client().post("toy", "/vars", json={})).json() == "unset"


async def test_streams_arrive_whole_and_can_be_read_in_pieces(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    response, other = [await client().post("toy", "/stream", json={}) for _ in range(2)]
    assert await response.content.read(4) == b"line"
    assert [line async for line in response.content] == [b" 0\n", b"line 1\n", b"line 2\n"]
    assert await response.content.read() == b""
    assert [len(part) async for part in other.content.iter_chunked(8)] == [8, 8, 5]
    async with response as entered:
        assert await entered.read() == b"line 0\nline 1\nline 2\n"
    response.release()


async def test_background_work_goes_on_after_the_reply(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    assert await (await client().post("toy", "/later", json={})).json() == "soon"
    async with asyncio.timeout(20):
        await neighbour.background.wait()


async def test_redirects_are_followed_over_the_network(neighbour: Neighbour) -> None:
    async with serving(neighbour.app) as port:
        hosted(neighbour.app, port)
        response = await client(port).post("toy", "/moved", json={"text": "x"})
        assert (await response.json())["body"] == {"text": "x"}


async def test_lifespan_state_is_there(neighbour: Neighbour) -> None:
    app = json_app()

    @app.post("/state")
    async def state(request: Request, body: dict[str, Any]) -> str:
        return str(request.state.thing)

    local.register("toy", "http://127.0.0.1:1", app, state={"thing": "t"})
    assert await (await client().post("toy", "/state", json={})).json() == "t"


async def test_an_app_that_says_nothing_is_a_500() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        return

    local.register("toy", "http://127.0.0.1:1", silent)
    assert (await client().post("toy", "/x", json={})).status == 500


async def test_only_the_same_address_is_local(neighbour: Neighbour) -> None:
    server = hosted(neighbour.app, 2)
    assert local.find("toy", "http://127.0.0.1:2", {"json": {}}) is server
    assert local.find("toy", "http://127.0.0.1:3", {}) is None
    assert local.find("other", "http://127.0.0.1:2", {}) is None


async def test_unusual_requests_go_over_the_network(neighbour: Neighbour) -> None:
    hosted(neighbour.app)
    address = "http://127.0.0.1:1"
    assert local.find("toy", address, {"allow_redirects": False}) is None
    assert local.find("toy", address, {"data": aiohttp.FormData()}) is None


async def test_other_loops_and_processes_are_not_local(neighbour: Neighbour) -> None:
    server = hosted(neighbour.app)

    async def elsewhere() -> LocalServer | None:
        return local.find("toy", "http://127.0.0.1:1", {})

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is None
    server.pid += 1
    assert await elsewhere() is None


async def test_a_name_can_be_given_up(neighbour: Neighbour) -> None:
    old, new = hosted(neighbour.app), hosted(neighbour.app)
    local.unregister(old)
    assert local.find("toy", "http://127.0.0.1:1", {}) is new
    local.unregister(new)
    assert local.find("toy", "http://127.0.0.1:1", {}) is None


async def test_a_limit_that_was_not_reached_leaves_no_timer(neighbour: Neighbour) -> None:
    server = hosted(neighbour.app)
    assert (await server.request("POST", "/echo", json={}, timeout=600)).status == 200
    assert alarms.pending() == 0
