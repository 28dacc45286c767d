"""Several servers in one process, each on a socket of its own, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib.util
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.types import ASGIApp

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.placement import PER_PROCESS_LIMIT, ShardMember
from nemo_gym.serve import local
from nemo_gym.serve.forks import reset_signals_in_forks
from nemo_gym.serve.in_flight_socket import open_table_socket
from nemo_gym.serve.log_prefix import PrefixedStream
from nemo_gym.serve.sockets import report_ready
from nemo_gym.serve.uvicorn_server import ServingOptions, UvicornServer

_Config = TypeVar("_Config", bound=BaseModel)

_STARTUP_FAILED = 3
_current: contextvars.ContextVar[str] = contextvars.ContextVar("nemo_gym_shard_member")


@dataclass(frozen=True)
class Resident:
    """One of the servers of this process; others here call `name` at `base_url` without a socket."""

    name: str
    base_url: str
    app: ASGIApp
    options: ServingOptions
    sock: socket.socket


def load_class(member: ShardMember) -> type:
    """The class of a member, its file imported once, under a name no other component has. ConfigError without one."""
    served = getattr(_load(member.module, member.file), member.served_class, None)
    if not isinstance(served, type) or not getattr(served, "shareable", False):
        raise ConfigError(
            f"{member.served_class} in {member.file} can't share a process with other servers: it isn't a class with "
            f"`shareable = True`."
        )
    return served


def _load(name: str, file: str) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "") == Path(file):
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, "an entrypoint is a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def share_of(config: _Config, shards: int) -> _Config:
    """A server's config with what it allows at a time divided among `shards` processes, at least 1 for each."""
    limits = {
        name: max(1, value // shards)
        for name, value in config
        if PER_PROCESS_LIMIT.match(name) and isinstance(value, int) and not isinstance(value, bool) and value > 0
    }
    return config.model_copy(update=limits) if shards > 1 and limits else config


@contextlib.contextmanager
def speaking_for(name: str) -> Iterator[None]:
    """Lines printed inside, and by whatever is started there, are this server's."""
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def prefix_by_member() -> None:
    """Put `(<server>) ` before every line printed on behalf of one."""
    for attribute in ("stdout", "stderr"):
        setattr(sys, attribute, _MemberStream(getattr(sys, attribute), ""))


class _MemberStream(PrefixedStream):
    def write(self, text: str) -> int:
        name = _current.get(None)
        self._prefix = f"({name}) " if name else ""
        return super().write(text)


def serve_all(residents: Sequence[Resident], ready_descriptor: int | None) -> None:
    """Answer requests until told to stop, and report readiness when all servers serve. Ends with SystemExit."""
    reset_signals_in_forks()
    host = _Host(residents, ready_descriptor)
    settings = residents[0].options.uvicorn_config(residents[0].app)
    with asyncio.Runner(loop_factory=settings.get_loop_factory()) as runner:
        code = runner.run(host.run())
    raise SystemExit(code)


class _Server(UvicornServer):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the host's business: there are several servers."""
        yield


class _Host:
    def __init__(self, residents: Sequence[Resident], ready_descriptor: int | None) -> None:
        self._residents = residents
        self._ready_descriptor = ready_descriptor
        self._missing = len(residents)
        self._servers: list[_Server] = []
        self._signal: int | None = None

    async def run(self) -> int:
        """The exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        tasks = [self._start(loop, resident) for resident in self._residents]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._stop(None)
        outcomes: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return _STARTUP_FAILED if self._signal is None else 128 + self._signal

    def _start(self, loop: asyncio.AbstractEventLoop, resident: Resident) -> asyncio.Task[None]:
        def ready(server: UvicornServer) -> None:
            local.register(resident.name, resident.base_url, resident.app, state=server.lifespan.state)
            self._missing -= 1
            if not self._missing:
                open_table_socket()
                report_ready(self._ready_descriptor)

        server = _Server(resident.options.uvicorn_config(resident.app), on_ready=ready)
        self._servers.append(server)
        with speaking_for(resident.name):
            return loop.create_task(server.serve(sockets=[resident.sock]))

    def _stop(self, number: int | None) -> None:
        self._signal = self._signal or number
        for server in self._servers:
            server.should_exit = True
