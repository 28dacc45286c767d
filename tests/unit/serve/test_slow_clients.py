"""Requests that begin and don't go on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import MagicMock

import pytest
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from nemo_gym.serve.bodies import read_body
from nemo_gym.serve.slow_clients import MAX_HEAD_BYTES, UvicornTimeoutsConfig
from nemo_gym.serve.uvicorn_server import KeepaliveHttpToolsProtocol, ServingOptions, UvicornServer
from tests.unit.serve.toys import free_socket

HEAD = b"POST /it HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 4\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class App:
    """Answers with the body, when it is there; notes what became of a request without."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            body = await read_body(receive)
        except Exception as error:
            self.outcome.set_result(type(error).__name__)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def at(app: App, *, seconds: float) -> AsyncIterator[Stream]:
    """A connection to a server that waits `seconds` for requests."""
    sock, ready = free_socket(), asyncio.Event()
    port = sock.getsockname()[1]
    options = ServingOptions("127.0.0.1", port, read_timeout_seconds=seconds)
    server = UvicornServer(options.uvicorn_config(app), on_ready=lambda _: ready.set())
    task = asyncio.create_task(server._serve([sock]))
    await ready.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await task


async def sent(stream: Stream, data: bytes) -> bytes:
    """What the server answers until it hangs up."""
    reader, writer = stream
    writer.write(data)
    return await asyncio.wait_for(reader.read(), 30)


@pytest.mark.parametrize("start", [HEAD, b"P", HEAD + b"x-cookie: "])
async def test_a_head_that_does_not_end_is_answered_408(start: bytes) -> None:
    """B32's class: a connection somebody holds open costs nothing for ever."""
    async with at(App(), seconds=0.1) as stream:
        assert (await sent(stream, start)).startswith(b"HTTP/1.1 408 ")


async def test_a_connection_without_a_request_is_closed() -> None:
    async with at(App(), seconds=0.1) as stream:
        assert await sent(stream, b"") == b""


async def test_a_body_that_stops_is_answered_408_and_its_handler_is_told() -> None:
    app = App()
    async with at(app, seconds=0.1) as stream:
        assert (await sent(stream, HEAD + b"\r\n{}")).startswith(b"HTTP/1.1 408 ")
        assert await asyncio.wait_for(app.outcome, 30) == "ClientDisconnect"


async def test_the_second_request_of_a_connection_is_watched_too() -> None:
    async with at(App(), seconds=0.1) as (reader, writer):
        writer.write(HEAD + b"\r\nnull")
        assert (await reader.readuntil(b"null")).startswith(b"HTTP/1.1 200 ")
        assert (await sent((reader, writer), HEAD)).startswith(b"HTTP/1.1 408 ")


async def test_a_head_without_end_is_refused() -> None:
    async with at(App(), seconds=30) as stream:
        line = b"x: " + b"y" * 1000 + b"\r\n"
        assert (await sent(stream, HEAD + line * (MAX_HEAD_BYTES // 900))).startswith(b"HTTP/1.1 431 ")


async def test_a_request_in_many_pieces_is_served() -> None:
    async with at(App(), seconds=30) as (reader, writer):
        for piece in (HEAD[:20], HEAD[20:], b"\r\n", b"nu", b"ll"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        assert b"null" in await reader.readuntil(b"null")


class Timers:
    """A loop's clock, wound by hand."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def call_later(self, seconds: float, callback: Any) -> Any:
        timer = MagicMock()
        timer.fire = callback
        timer.cancel.side_effect = lambda: self.waiting.remove(timer)
        self.waiting.append(timer)
        return timer


def connection(timers: Timers, **options: Any) -> tuple[Any, Any]:
    settings = ServingOptions("127.0.0.1", 1).uvicorn_config(MagicMock())
    make = functools.partial(KeepaliveHttpToolsProtocol, keepalive=(60, 10, 3), **options)
    loop = MagicMock(call_later=timers.call_later, create_task=lambda work: work.close() or MagicMock())
    protocol: Any = make(config=settings, server_state=MagicMock(default_headers=[]), app_state={}, _loop=loop)
    transport = MagicMock()
    transport.is_closing.return_value = False
    transport.get_extra_info.return_value = None
    protocol.connection_made(transport)
    return protocol, transport


def test_every_piece_of_a_body_starts_the_wait_anew_and_the_last_ends_it() -> None:
    timers = Timers()
    protocol, _ = connection(timers)
    protocol.data_received(HEAD[:9])
    (first,) = timers.waiting
    protocol.data_received(HEAD[9:])
    assert timers.waiting == [first]  # the head is timed as a whole
    protocol.data_received(b"\r\n1")
    (second,) = timers.waiting
    protocol.data_received(b"2")
    assert first is not second and timers.waiting != [second] and len(timers.waiting) == 1
    protocol.data_received(b"34")
    assert timers.waiting == []


def test_a_body_we_do_not_read_is_not_late() -> None:
    timers = Timers()
    protocol, transport = connection(timers)
    protocol.data_received(HEAD + b"\r\n1")
    protocol.flow.pause_reading()
    timers.waiting.pop().fire()
    transport.close.assert_not_called()
    protocol.flow.resume_reading()
    timers.waiting.pop().fire()
    transport.close.assert_called_once()


def test_nothing_is_late_where_nobody_waits() -> None:
    timers = Timers()
    connection(timers, read_timeout=0)[0].data_received(HEAD)
    assert timers.waiting == []


@pytest.mark.parametrize("seconds", [-1, "soon", float("inf")])
def test_a_wrong_setting_is_refused(seconds: Any) -> None:
    with pytest.raises(ValidationError, match="uvicorn_timeout_request_read"):
        UvicornTimeoutsConfig.model_validate({"uvicorn_timeout_request_read": seconds})
