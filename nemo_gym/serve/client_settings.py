"""Settings of the shared HTTP client, and whether this machine can carry them."""

from __future__ import annotations

import math
import resource
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, ModelWrapValidatorHandler, model_validator


class GlobalAIOHTTPAsyncClientConfig(BaseModel):
    """Keys of the global config that shape the shared client; limits count connections, 0 means no limit."""

    global_aiohttp_connector_limit: int = Field(default=100 * 1024, ge=0)
    global_aiohttp_connector_limit_per_host: int = Field(default=1024, ge=0)
    global_aiohttp_intended_concurrency: int | None = Field(default=None, gt=0)
    global_aiohttp_intended_concurrency_per_host: int | None = Field(default=None, gt=0)
    global_aiohttp_client_request_debug: bool = False
    global_aiohttp_tcp_keepalive_idle_seconds: int = Field(default=60, ge=1, le=32767)
    global_aiohttp_tcp_keepalive_interval_seconds: int = Field(default=10, ge=1, le=32767)
    global_aiohttp_tcp_keepalive_probes: int = Field(default=3, ge=1, le=127)

    @model_validator(mode="wrap")
    @classmethod
    def _have_room_for_the_run(cls, values: Any, validated: ModelWrapValidatorHandler[Self]) -> Self:
        """Unless it is set, the limit per host is no less than the rollouts that the same config wants in flight."""
        settings = validated(values)
        wanted = values.get(_ROLLOUTS_IN_FLIGHT) if isinstance(values, Mapping) else None
        if "global_aiohttp_connector_limit_per_host" not in settings.model_fields_set and isinstance(wanted, int):
            limit = max(wanted, settings.global_aiohttp_connector_limit_per_host)
            settings.__dict__["global_aiohttp_connector_limit_per_host"] = limit
        return settings

    @property
    def tcp_keepalive(self) -> tuple[int, int, int]:
        """Idle seconds, interval seconds, probes."""
        return (
            self.global_aiohttp_tcp_keepalive_idle_seconds,
            self.global_aiohttp_tcp_keepalive_interval_seconds,
            self.global_aiohttp_tcp_keepalive_probes,
        )

    def for_one_worker(self, workers: int) -> GlobalAIOHTTPAsyncClientConfig:
        """The share of one of `workers` processes; ValueError when a limit is too small to be shared."""
        if workers <= 1:
            return self
        return self.model_copy(
            update={
                **{name: self._share(name, workers) for name in _LIMITS},
                **{name: _share_up(getattr(self, name), workers) for name in _INTENTIONS},
            }
        )

    def _share(self, name: str, workers: int) -> int:
        limit: int = getattr(self, name)
        if limit and limit < workers:
            raise ValueError(f"{name} is {limit}, which leaves no connection for each of {workers} workers: raise it.")
        return limit // workers

    def capacity_line(self) -> str:
        """What the client can do, for the log."""
        total, per_host = (getattr(self, name) or "unlimited" for name in _LIMITS)
        return f"HTTP client: up to {total} connections, {per_host} to one host"

    def capacity_warnings(self) -> Iterator[str]:
        """Where the intended concurrency asks for more than the pool or this machine has."""
        for intention, limit in zip(_INTENTIONS, _LIMITS, strict=True):
            wanted, allowed = getattr(self, intention), getattr(self, limit)
            if wanted and allowed and wanted > allowed:
                yield f"{intention} is {wanted}, more than {limit} ({allowed}): requests will wait for connections."
        wanted = self.global_aiohttp_intended_concurrency
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if wanted and files != resource.RLIM_INFINITY and wanted > files:
            yield f"{wanted} requests at once need more open files than allowed ({files}): raise `ulimit -n`."
        per_host, ports = self.global_aiohttp_intended_concurrency_per_host, _ephemeral_ports()
        if per_host and ports and per_host > ports:
            yield f"{per_host} connections to one host are more than this machine's {ports} ephemeral ports."


_ROLLOUTS_IN_FLIGHT = "num_samples_in_parallel"
_LIMITS = ("global_aiohttp_connector_limit", "global_aiohttp_connector_limit_per_host")
_INTENTIONS = ("global_aiohttp_intended_concurrency", "global_aiohttp_intended_concurrency_per_host")


def set_tcp_keepalive(sock: socket.socket, keepalive: tuple[int, int, int]) -> None:
    """Have the kernel notice a peer that vanished: after `idle` seconds, `probes` times every `interval` seconds."""
    idle, interval, probes = keepalive
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle_option = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    for option, value in (
        (idle_option, idle),
        (getattr(socket, "TCP_KEEPINTVL", None), interval),
        (getattr(socket, "TCP_KEEPCNT", None), probes),
    ):
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _share_up(intention: int | None, workers: int) -> int | None:
    return None if intention is None else math.ceil(intention / workers)


def _ephemeral_ports() -> int | None:
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return None
    return high - low + 1
