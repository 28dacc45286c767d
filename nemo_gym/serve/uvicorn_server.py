"""uvicorn as Gym runs it."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from pydantic import BaseModel, model_validator
from starlette.types import ASGIApp

from nemo_gym.serve.client_settings import set_tcp_keepalive
from nemo_gym.serve.slow_clients import READ_TIMEOUT_SECONDS, PatientProtocol
from nemo_gym.serve.sockets import BACKLOG

KEEP_ALIVE_SECONDS = 30
"""Idle connections are kept longer than clients keep them (15 s), so that no request meets a closing one."""
GRACEFUL_SHUTDOWN_SECONDS = 0.5


class KeepaliveHttpToolsProtocol(PatientProtocol):
    """Has the kernel notice clients that vanished; `keepalive` is (idle seconds, interval seconds, probes)."""

    def __init__(self, *args: Any, keepalive: tuple[int, int, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tcp_keepalive = keepalive

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            set_tcp_keepalive(sock, self._tcp_keepalive)
            # asyncio does so too, but not for sockets accepted by one that was made without a protocol number.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


class UvicornProxyHeadersConfig(BaseModel):
    """Whether `X-Forwarded-*` headers are believed, and from whom; ValueError when that would be everybody."""

    uvicorn_proxy_headers: bool = False
    uvicorn_forwarded_allow_ips: list[str] | None = None

    @model_validator(mode="after")
    def require_named_proxies(self) -> UvicornProxyHeadersConfig:
        if not self.uvicorn_proxy_headers:
            return self
        entries = [entry.strip() for entry in self.uvicorn_forwarded_allow_ips or []]
        if not entries:
            raise ValueError("uvicorn_proxy_headers needs uvicorn_forwarded_allow_ips: the addresses of your proxies.")
        for entry in entries:
            _check_proxy(entry)
        self.uvicorn_forwarded_allow_ips = entries
        return self


_MAPPED_V4 = ipaddress.IPv6Network("::ffff:0:0/96")


def _check_proxy(entry: str) -> None:
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        raise ValueError(f"uvicorn_forwarded_allow_ips has {entry!r}: it must be an address or network.") from None
    covers_v4 = isinstance(network, ipaddress.IPv6Network) and _MAPPED_V4.subnet_of(network)
    if network.prefixlen == 0 or covers_v4:
        raise ValueError(f"uvicorn_forwarded_allow_ips has {entry!r}, which covers everybody: name your proxies.")


@dataclass(frozen=True)
class ServingOptions:
    """How an app is served; the defaults are those of every Gym server."""

    host: str
    port: int
    tcp_keepalive: tuple[int, int, int] = (60, 10, 3)
    access_log: bool = False
    proxies: UvicornProxyHeadersConfig = field(default_factory=UvicornProxyHeadersConfig)
    graceful_shutdown_seconds: float = GRACEFUL_SHUTDOWN_SECONDS
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS

    def uvicorn_config(self, app: ASGIApp) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            host=self.host,
            port=self.port,
            http=functools.partial(  # type: ignore[arg-type]
                KeepaliveHttpToolsProtocol, keepalive=self.tcp_keepalive, read_timeout=self.read_timeout_seconds
            ),
            log_level="info" if self.access_log else "warning",
            access_log=self.access_log,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=self.graceful_shutdown_seconds,  # type: ignore[arg-type]
            proxy_headers=self.proxies.uvicorn_proxy_headers,
            forwarded_allow_ips=self.proxies.uvicorn_forwarded_allow_ips or [],
            server_header=False,
            date_header=False,
        )


class UvicornServer(uvicorn.Server):
    """A server that says when it serves, and sleeps until it is told to stop instead of looking ten times a second.

    `on_ready` runs in the server's loop once requests are answered.
    """

    def __init__(self, config: uvicorn.Config, *, on_ready: Callable[[UvicornServer], None] | None = None) -> None:
        self._should_exit = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        super().__init__(config)
        self._on_ready = on_ready

    @property
    def should_exit(self) -> bool:
        """Set it, from any thread, to stop."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if value and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        if self.started and self._on_ready is not None:
            self._on_ready(self)

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await self._stopping.wait()
