"""The shared HTTP client: one pool of connections per event loop, which remembers how each request got its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakSet

import aiohttp
from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from nemo_gym.serve.client_settings import GlobalAIOHTTPAsyncClientConfig, set_tcp_keepalive
from nemo_gym.serve.cookies import set_cookies
from nemo_gym.telemetry.connection_pool import ConnectionPoolTelemetry, QueueConstraint, QueueOutcome

KEEP_ALIVE_SECONDS = 15
"""Idle connections are kept this long: less than our servers keep them (30 s), so that none is closed under us."""


@dataclass(slots=True)
class Connecting:
    """What happened to one attempt at a request before its reply."""

    idle_seconds: float | None = None
    """How long the connection had been idle; None when it was new or none was had."""
    connected: bool = False
    sent_at: float = 0.0


current_attempt: ContextVar[Connecting | None] = ContextVar("nemo_gym_http_attempt", default=None)


class _Connector(TCPConnector):
    """Notes for the current attempt whether its connection was new, and how long it had been idle.

    With `telemetry` it reports new connections and, where aiohttp has the method, waiting for one of the limited slots.
    """

    def __init__(self, *, telemetry: ConnectionPoolTelemetry | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._telemetry = telemetry

    async def _create_connection(self, *args: Any, **options: Any) -> Any:
        protocol = await super()._create_connection(*args, **options)
        if self._telemetry is not None:
            self._telemetry.connected()
        return protocol

    async def _wait_for_available_connection(self, key: Any, *args: Any, **options: Any) -> None:
        if self._telemetry is None:
            await super()._wait_for_available_connection(key, *args, **options)
            return
        started, constraint, outcome = time.monotonic(), self._constraint(key), "abandoned"
        try:
            await super()._wait_for_available_connection(key, *args, **options)
            outcome = "ok"
        finally:
            self._telemetry.queued(time.monotonic() - started, constraint, cast(QueueOutcome, outcome))

    def _constraint(self, key: Any) -> QueueConstraint:
        if self.limit and len(self._acquired) >= self.limit:
            return "total"
        is_host_full = self.limit_per_host and len(self._acquired_per_host.get(key, ())) >= self.limit_per_host
        return "per_host" if is_host_full else "unknown"

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        connection = await super().connect(req, traces, timeout)
        attempt = current_attempt.get()
        if attempt is not None:
            attempt.connected = True
            attempt.sent_at = time.monotonic()
            released_at = getattr(connection.protocol, "nemo_gym_released_at", None)
            attempt.idle_seconds = None if released_at is None else attempt.sent_at - released_at
        return connection

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        protocol.nemo_gym_released_at = time.monotonic()
        super()._release(key, protocol, should_close=should_close)


class _NoCookies(DummyCookieJar):
    """Keeps no cookies, and doesn't even read those of responses: callers do, where they want them."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        return


class _Response(ClientResponse):
    """Reads its cookies with our quicker parser."""

    @property
    def cookies(self) -> SimpleCookie:
        if self._cookies is None:
            self._cookies = set_cookies(self.raw_headers)
        return self._cookies

    @cookies.setter
    def cookies(self, cookies: SimpleCookie) -> None:
        self._cookies = cookies


class ClientSessions:
    """The client session of each running event loop, all with the same settings.

    A session dies with its loop; what a closed loop left behind is dropped when the next one is made.
    """

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession] = WeakKeyDictionary()
        self._ours: WeakSet[object] = WeakSet()

    def find(self) -> ClientSession | None:
        """The usable session of the running loop, if it has one."""
        session = self._by_loop.get(asyncio.get_running_loop())
        return None if session is None or session.closed else session

    def owns(self, session: object) -> bool:
        """Whether this is one of ours, and not something a test put in its place."""
        return session in self._ours

    def create(
        self, settings: GlobalAIOHTTPAsyncClientConfig, telemetry: ConnectionPoolTelemetry | None = None
    ) -> ClientSession:
        """A session for the running loop."""
        self._drop_closed_loops()
        session = new_session(settings, telemetry)
        self._by_loop[asyncio.get_running_loop()] = session
        self._ours.add(session)
        return session

    def take_all(self) -> list[tuple[asyncio.AbstractEventLoop, ClientSession]]:
        """Every session with its loop; they are forgotten here."""
        taken = list(self._by_loop.items())
        self._by_loop.clear()
        return taken

    def _drop_closed_loops(self) -> None:
        for loop, session in list(self._by_loop.items()):
            if loop.is_closed():
                del self._by_loop[loop]
                abandon(session)


def new_session(
    settings: GlobalAIOHTTPAsyncClientConfig, telemetry: ConnectionPoolTelemetry | None = None
) -> ClientSession:
    """A client without timeouts and without cookies of its own."""

    def keepalive_socket(address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        sock = socket.socket(family=family, type=kind, proto=protocol)
        with contextlib.suppress(OSError):
            set_tcp_keepalive(sock, settings.tcp_keepalive)
        return sock

    return ClientSession(
        connector=_Connector(
            telemetry=telemetry,
            limit=settings.global_aiohttp_connector_limit,
            limit_per_host=settings.global_aiohttp_connector_limit_per_host,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            socket_factory=keepalive_socket,
        ),
        timeout=ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
        cookie_jar=_NoCookies(),
        response_class=_Response,
        version=aiohttp.HttpVersion11,
    )


def abandon(session: ClientSession) -> None:
    """Let go of a session whose loop is gone: its sockets are closed, nothing is awaited."""
    connector = session.connector
    session.detach()
    if connector is not None:
        with contextlib.suppress(Exception):
            connector._close()


def break_off(session: ClientSession, base_url: str) -> None:
    """Close every connection to one address, those in use too: their requests fail as when the peer hangs up."""
    connector = session.connector
    where = URL(base_url)
    if not isinstance(connector, TCPConnector):
        return
    for key, protocols in list(connector._acquired_per_host.items()):
        if (key.host, key.port) == (where.host, where.port):
            for protocol in list(protocols):
                if protocol.transport is not None:
                    protocol.transport.abort()
    for key in [key for key in connector._conns if (key.host, key.port) == (where.host, where.port)]:
        for protocol, _ in connector._conns.pop(key):
            protocol.close()
