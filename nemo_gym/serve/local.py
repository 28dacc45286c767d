"""Servers that live in this process are called without a socket.

A process registers what it serves; a call to such a server becomes one task that runs its ASGI app.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Message, Scope
from yarl import URL

from nemo_gym.schema.pressure import note_pressure, pressure_in_raw
from nemo_gym.serve.alarms import ring_after
from nemo_gym.serve.asgi_request import asgi_request
from nemo_gym.serve.cancellation import ClientDisconnectCancellationMiddleware
from nemo_gym.serve.deadline import DeadlineExceededError, is_over
from nemo_gym.serve.guards import BodyLimit, HostGuard
from nemo_gym.serve.local_response import LocalResponse

_UNDERSTOOD_OPTIONS = frozenset({"data", "headers", "cookies", "params", "timeout", "json"})


@dataclass(eq=False)
class LocalServer:
    """An app this process serves at `base_url`, runnable by tasks of the loop it was registered in."""

    name: str
    base_url: str
    app: ASGIApp
    loop: asyncio.AbstractEventLoop
    context: contextvars.Context
    state: Mapping[str, Any]
    pid: int = field(default_factory=os.getpid)
    entry: ASGIApp = field(init=False)
    """Where a request starts that came over no network."""

    def __post_init__(self) -> None:
        self.entry = _below_network_layers(self.app) or self.app

    async def request(self, method: str, url_path: str, **options: Any) -> LocalResponse:
        """What an HTTP request to the server would answer; takes aiohttp's options, follows no redirects.

        The handler runs in a task and a context of its own. A timeout or a cancelled caller cancels it; what it raises
        is answered with a 500.
        """
        url_path = _with_query(url_path, options.get("params"))
        body, headers, seconds = asgi_request(options, self.authority)
        exchange = _Exchange(body)
        scope = self._scope(method.upper(), url_path, headers)
        task = self.loop.create_task(_run(self.entry, scope, exchange), context=self.context.copy())
        try:
            await _finished(task, exchange, seconds)
        except TimeoutError as error:
            if is_over():
                raise DeadlineExceededError(f"the rollout's deadline passed while {url_path} was asked") from error
            raise
        response = LocalResponse(
            method=method.upper(),
            url=self.base_url + url_path,
            status=exchange.status,
            raw_headers=exchange.headers,
            body=b"".join(exchange.chunks),
        )
        note_pressure(pressure_in_raw(exchange.headers))
        return response

    @cached_property
    def authority(self) -> bytes:
        """`host:port` as in a Host header."""
        return urlsplit(self.base_url).netloc.encode("ascii")

    @cached_property
    def _address(self) -> tuple[str | None, int | None]:
        parts = urlsplit(self.base_url)
        return parts.hostname, parts.port

    def _scope(self, method: str, url_path: str, headers: list[tuple[bytes, bytes]]) -> Scope:
        path, raw_path, query = _parts(url_path)
        return {
            "type": "http",
            "app": self.app,
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self._address,
            "client": ("127.0.0.1", 0),
            "scheme": "http",
            "method": method,
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
            "state": dict(self.state),
        }


_SAFE_IN_PATH = "/%:@!$&'()*+,;=~"
_SAFE_IN_QUERY = _SAFE_IN_PATH + "?"


@lru_cache(maxsize=256)
def _parts(url_path: str) -> tuple[str, bytes, bytes]:
    """The path, decoded and not, and the query of a request; the same few are asked for again and again."""
    path, _, query = url_path.partition("#")[0].partition("?")
    raw_path = quote(path, safe=_SAFE_IN_PATH).encode("ascii")
    return unquote(path), raw_path, quote(query, safe=_SAFE_IN_QUERY).encode("ascii")


_servers: dict[str, LocalServer] = {}


def register(name: str, base_url: str, app: ASGIApp, *, state: Mapping[str, Any] | None = None) -> LocalServer:
    """Have calls from the running loop to `name` at `base_url` go straight to `app`.

    The app's lifespan is the caller's business; `state` is what it yielded.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    server = LocalServer(name, base_url.rstrip("/"), app, loop, context, state or {})
    _servers[name] = server
    return server


def unregister(server: LocalServer) -> None:
    """Undo `register`; nothing happens when another server has taken the name."""
    if _servers.get(server.name) is server:
        del _servers[server.name]


def find(name: str, base_url: str, options: Mapping[str, Any]) -> LocalServer | None:
    """The server of that name and address in this process and loop, if a call with these options can go to it."""
    server = _servers.get(name)
    if server is None or server.base_url != base_url or server.pid != os.getpid():
        return None
    if asyncio.get_running_loop() is not server.loop or not _UNDERSTOOD_OPTIONS.issuperset(options):
        return None
    return server if isinstance(options.get("data"), bytes | bytearray | str | None) else None


def _below_network_layers(app: ASGIApp) -> ASGIApp | None:
    """What is left of an app's middleware without that which only watches connections and strangers.

    None where something else comes first, and has to be passed.
    """
    layer = getattr(app, "middleware_stack", None)
    while isinstance(layer, _NETWORK_LAYERS) or type(layer).__module__.startswith("fastapi."):
        if isinstance(layer, ClientDisconnectCancellationMiddleware):
            return layer.app
        layer = getattr(layer, "app", None)
    return None


_NETWORK_LAYERS = (ServerErrorMiddleware, HostGuard, BodyLimit, ClientDisconnectCancellationMiddleware)


class _Exchange:
    """One request and its reply, as the two callables of ASGI."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.status = 500
        self.headers: list[tuple[bytes, bytes]] = []
        self.chunks: list[bytes] = []
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._body_taken = False

    async def receive(self) -> Message:
        if not self._body_taken:
            self._body_taken = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await asyncio.wait([self.complete])
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.chunks.append(message.get("body", b""))
            if not message.get("more_body", False):
                self.finish()

    def fail(self, error: BaseException) -> None:
        """Answer what a server that doesn't catch its handler's errors would."""
        if not self.complete.done():
            self.status, self.headers = 500, [(b"content-type", b"text/plain; charset=utf-8")]
            self.chunks = [f"Internal Server Error: {error!r}".encode()]
            self.finish()

    def finish(self) -> None:
        if not self.complete.done():
            self.complete.set_result(None)

    def run_out(self) -> None:
        """No reply in time."""
        if not self.complete.done():
            self.complete.set_exception(TimeoutError())


async def _run(app: ASGIApp, scope: Scope, exchange: _Exchange) -> None:
    try:
        await app(scope, exchange.receive, exchange.send)
    except Exception as error:
        exchange.fail(error)
    finally:
        exchange.fail(RuntimeError("the handler ended without a reply"))


async def _finished(task: asyncio.Task[None], exchange: _Exchange, seconds: float | None) -> None:
    """Wait for the whole reply; background work of the handler may go on after it."""
    alarm = None if seconds is None else ring_after(seconds, exchange.run_out)
    try:
        await exchange.complete
    except BaseException:
        task.cancel()
        raise
    finally:
        if alarm is not None:
            alarm.cancel()
        if not task.done():
            _background.add(task)
            task.add_done_callback(_background.discard)


_background: set[asyncio.Task[None]] = set()


def _with_query(url_path: str, params: Any) -> str:
    return str(URL(url_path).update_query(params)) if params else url_path
