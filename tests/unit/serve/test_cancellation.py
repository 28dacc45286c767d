from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.serve import cancellation
from nemo_gym.serve.cancellation import ClientDisconnectCancellationMiddleware
from nemo_gym.serve.failures import CAUSE_HEADER, Cause, ExceptionMiddleware
from nemo_gym.serve.json_app import json_app
from tests.unit.serve.toys import read_request, serving


class Watched:
    """An app with a handler that waits for ever, and what happened to it."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.finish = asyncio.Event()
        self.app = json_app()
        self.app.post("/wait")(self.wait)
        self.app.post("/stream")(self.stream)
        self.app.post("/ask")(self.ask)
        self.middleware = ClientDisconnectCancellationMiddleware(
            ExceptionMiddleware(self.app, server_label="x"), is_debug=lambda: True
        )

    async def wait(self, body: dict[str, str]) -> dict[str, str]:
        self.started.set()
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"done": body["v"]}

    async def stream(self, body: dict[str, str]) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                self.started.set()
                await self.finish.wait()
                yield b"last"
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        return StreamingResponse(parts())

    async def ask(self, request: Request, body: dict[str, str]) -> bool:
        self.started.set()
        await self.finish.wait()
        return await request.is_disconnected()


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture(autouse=True)
def watch_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "WATCH_AFTER_SECONDS", 0.001)


async def connect(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"
    writer.write(head.encode() + b'{"v": "a"}')
    return reader, writer


async def within_time(event: asyncio.Event) -> None:
    async with asyncio.timeout(20):
        await event.wait()


@pytest.mark.parametrize("path", ["/wait", "/stream"])
async def test_a_client_that_leaves_ends_the_work(
    watched: Watched, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(watched.middleware) as port:
        _, writer = await connect(port, path)
        await within_time(watched.started)
        writer.close()
        await within_time(watched.cancelled)
    assert watched.middleware.num_cancelled == 1
    assert f"499 POST {path}" in capsys.readouterr().out


async def test_a_client_that_stays_gets_its_answer(watched: Watched) -> None:
    async with serving(watched.middleware) as port:
        reader, writer = await connect(port, "/wait")
        await within_time(watched.started)
        asyncio.get_running_loop().call_later(0.05, watched.finish.set)
        reply = await read_request(reader)
        writer.close()
    assert b"200 OK" in reply and reply.endswith(b'{"done":"a"}')
    assert watched.middleware.num_cancelled == 0


async def test_a_handler_may_still_ask_whether_the_client_is_there(watched: Watched) -> None:
    async with serving(watched.middleware) as port:
        reader, writer = await connect(port, "/ask")
        await within_time(watched.started)
        asyncio.get_running_loop().call_later(0.05, watched.finish.set)
        reply = await read_request(reader)
        writer.close()
    assert reply.endswith(b"false")


async def test_the_servers_task_survives_a_cancelled_handler(watched: Watched) -> None:
    async with serving(watched.middleware) as port:
        for _ in range(2):
            watched.started.clear()
            _, writer = await connect(port, "/wait")
            await within_time(watched.started)
            watched.cancelled.clear()
            writer.close()
            await within_time(watched.cancelled)
        watched.finish.set()
        reader, writer = await connect(port, "/wait")
        assert (await read_request(reader)).endswith(b'{"done":"a"}')
        writer.close()
    assert watched.middleware.num_cancelled == 2


async def test_a_body_that_stops_in_the_middle_is_no_request(watched: Watched) -> None:
    async with serving(watched.middleware) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        watched.finish.set()
        reader, writer = await connect(port, "/wait")
        assert (await read_request(reader)).endswith(b'{"done":"a"}')
        writer.close()
    assert watched.middleware.num_cancelled == 1


async def test_a_body_read_late_is_still_there(watched: Watched) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        started.set()
        await finish.wait()
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async with serving(ClientDisconnectCancellationMiddleware(late)) as port:
        reader, writer = await connect(port, "/late")
        await within_time(started)
        asyncio.get_running_loop().call_later(0.05, finish.set)
        assert b'{"v": "a"}' in await reader.readuntil(b'"a"}')
        writer.close()


async def test_an_interrupted_handler_ends_quietly() -> None:
    async def forever(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pytest.fail("nobody is there")

    middleware = ClientDisconnectCancellationMiddleware(forever)
    await middleware({"type": "http", "method": "POST", "path": "/x"}, gone, send)
    task = asyncio.current_task()
    assert middleware.num_cancelled == 1 and task is not None and task.cancelling() == 0


async def test_a_cancelled_server_task_is_not_mistaken_for_a_client_that_left() -> None:
    async def forever(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    middleware = ClientDisconnectCancellationMiddleware(forever)
    task = asyncio.create_task(middleware({"type": "http"}, asyncio.Event().wait, send))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert middleware.num_cancelled == 0
    cause = Cause.of_headers({CAUSE_HEADER: dict(sent[0]["headers"])[CAUSE_HEADER.lower().encode()]})
    assert sent[0]["status"] == 502 and cause is not None and cause.kind == "transport_peer_drop"


async def test_other_protocols_pass(watched: Watched) -> None:
    seen = []

    async def app(scope: object, receive: object, send: object) -> None:
        seen.append(scope)

    middleware: ASGIApp = ClientDisconnectCancellationMiddleware(app)
    await middleware({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan"}]


async def test_a_server_that_stops_blames_the_connection_and_a_handler_that_gives_up_itself() -> None:
    """B26: what was under way when a server stopped is tried again; a handler's own mistake isn't."""
    causes: list[Cause | None] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            causes.append(Cause.of_headers({CAUSE_HEADER: dict(message["headers"])[CAUSE_HEADER.lower().encode()]}))

    async def forever(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def gives_up(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    task = asyncio.create_task(ExceptionMiddleware(forever, server_label="toy")({"type": "http"}, _nothing, send))
    await asyncio.sleep(0)
    task.cancel()
    await task
    await ExceptionMiddleware(gives_up, server_label="toy")({"type": "http"}, _nothing, send)
    assert [cause and cause.kind for cause in causes] == ["transport_peer_drop", None]


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
