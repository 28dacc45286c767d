"""Small servers, configs and callers for the tests of serving."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import MagicMock

from omegaconf import DictConfig, OmegaConf
from starlette.types import ASGIApp, Message, Scope

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.serve.uvicorn_server import ServingOptions, UvicornServer
from nemo_gym.server_utils import ServerClient

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "created_at": 1.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ROW: dict[str, Any] = {"responses_create_params": {"input": "hi"}}
VERIFY: dict[str, Any] = {**ROW, "response": RESPONSE}


class ToyResources(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


def resources_config(**fields: Any) -> BaseResourcesServerConfig:
    return BaseResourcesServerConfig(
        **{"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "toy", **fields}
    )


def mock_client(config: Any = None) -> Any:
    """A client as components' tests have it; its config exists only when given."""
    client = MagicMock(spec=ServerClient)
    if config is not None:
        client.global_config_dict = config
    return client


def toy_resources(**fields: Any) -> ToyResources:
    return ToyResources(config=resources_config(**fields), server_client=mock_client())


def config_of(*servers: tuple[str, str, int], **extra: Any) -> DictConfig:
    """A config with servers given as (name, type, port)."""
    entries = {name: {kind: {"toy": {"host": "127.0.0.1", "port": port}}} for name, kind, port in servers}
    return OmegaConf.create({**entries, **extra})


def client_of(config: DictConfig) -> ServerClient:
    head = BaseServerConfig(host="127.0.0.1", port=11000)
    return ServerClient(head_server_config=head, global_config_dict=config)


def free_socket() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    return sock


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """The app on a loopback port of this process's loop."""
    sock = free_socket()
    port: int = sock.getsockname()[1]
    ready = asyncio.Event()
    options = ServingOptions("127.0.0.1", port)
    server = UvicornServer(options.uvicorn_config(app), on_ready=lambda _: ready.set())
    task = asyncio.create_task(server._serve([sock]))
    await ready.wait()
    try:
        yield port
    finally:
        server.should_exit = True
        await task


Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(connected: Connected) -> AsyncIterator[int]:
    """A TCP server that does what `connected` says with each connection."""
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()  # from Python 3.12 on, waiting for its end is waiting for its connections


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One HTTP request with its body; empty at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


def http_reply(body: bytes = b"{}", status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


async def call_app(
    app: ASGIApp, path: str, body: bytes = b"", *, method: str = "POST", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request to an ASGI app; what the app raises comes through."""
    given = {"host": "127.0.0.1", "content-type": "application/json", **(headers or {})}
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "state": {},
    }
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not pending:
            await asyncio.Event().wait()  # as a server does: a body comes once, then nothing until the client hangs up
        return pending.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    decoded = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return start["status"], decoded, b"".join(message.get("body", b"") for message in sent[1:])
