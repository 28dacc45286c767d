"""Which requests this process is answering, for which rollouts, since when, and whom it waits for meanwhile.

The table costs a request a few dictionary operations; what it says about them is put together only when it is asked.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from itertools import islice
from types import FrameType, TracebackType
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.config.keys import ATTEMPT_INDEX_KEY_NAME, ROLLOUT_ID_KEY_NAME
from nemo_gym.schema.backend_endpoint import troubles
from nemo_gym.serve.control_socket import unknown_operation
from nemo_gym.serve.correlation import maybe_rollout_id_from_run_body, split_rollout_prefix
from nemo_gym.serve.loop_lag import loop_lag_seconds

ROLLOUT_HEADER = "X-NeMo-Gym-Rollout"
"""The rollout a request between servers of a run works for. No provider gets it."""
MOST_ROWS = 1000

_HEADER = ROLLOUT_HEADER.lower().encode("ascii")
_LONGEST_ROLLOUT = 200
_PREFIX = "/ng-rollout/"
_RUN_PATH = "/run"


class Waiting:
    """A call to another server that has not been answered yet; as a context, for as long as it lasts."""

    __slots__ = ("_request", "path", "server", "since")

    def __init__(self, request: Request | None, server: str, path: str) -> None:
        self.server = server
        self.path = path
        self.since = 0.0
        self._request = request

    def __enter__(self) -> None:
        if self._request is not None:
            self.since = time.monotonic()
            self._request.calls.append(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._request is not None:
            self._request.calls.remove(self)


class Request:
    """One request that is being answered. `rollout` is the id its caller sent along."""

    __slots__ = ("calls", "path", "rollout", "server", "since")

    def __init__(self, server: str, path: str, rollout: str | None, since: float) -> None:
        self.server = server
        self.path = path
        self.rollout = rollout
        self.since = since
        self.calls: list[Waiting] = []

    def row(self, now: float) -> dict[str, Any]:
        """What is told of it; ages in seconds."""
        calls = [{"server": call.server, "path": call.path, "age_s": _age(call.since, now)} for call in self.calls]
        told = {"server": self.server, "path": self.path, "rollout": self.rollout, "age_s": _age(self.since, now)}
        return {**told, "calls": calls}


_current: ContextVar[Request | None] = ContextVar("nemo_gym_request", default=None)


def current_rollout() -> str | None:
    """The id of the rollout for which the current request was sent here; None outside of one."""
    request = _current.get()
    return None if request is None else request.rollout


def waiting_for(server: str, path: str) -> Waiting:
    """As a context around a call to another server: the current request waits for it."""
    return Waiting(_current.get(), server, path)


def with_rollout(options: dict[str, Any], path: str) -> dict[str, Any]:
    """The aiohttp options of a call between servers, with the rollout it is made for where that is known."""
    rollout = current_rollout()
    if rollout is None and path == _RUN_PATH and isinstance(options.get("json"), Mapping):
        rollout = _rollout_of(options["json"])
    if rollout is None:
        return options
    return {**options, "headers": {**dict(options.get("headers") or ()), ROLLOUT_HEADER: rollout}}


def _rollout_of(body: Mapping[str, Any]) -> str | None:
    """The rollout that a `/run` body, of a row or an episode, asks for."""
    episode = body.get("episode_id")
    try:
        if isinstance(episode, Mapping):
            named = {ROLLOUT_ID_KEY_NAME: episode.get("rollout_id"), ATTEMPT_INDEX_KEY_NAME: episode.get("attempt")}
            return maybe_rollout_id_from_run_body(named)
        return maybe_rollout_id_from_run_body(body)
    except ValueError:
        return None


class ServerTable:
    """The requests one server is answering, oldest first, and how many it has answered."""

    def __init__(self, name: str, sessions: Callable[[], int], clock: Callable[[], float]) -> None:
        self.name = name
        self.served = 0
        self.requests: dict[Request, None] = {}
        self._sessions = sessions
        self._clock = clock
        self._paths: dict[str, int] = {}

    def began(self, path: str, rollout: str | None) -> Request:
        request = Request(self.name, path, rollout, self._clock())
        self.requests[request] = None
        self._paths[path] = self._paths.get(path, 0) + 1
        return request

    def ended(self, request: Request) -> None:
        del self.requests[request]
        self.served += 1
        left = self._paths[request.path] - 1
        if left:
            self._paths[request.path] = left
        else:
            del self._paths[request.path]

    def counts(self, now: float) -> dict[str, Any]:
        oldest = next(iter(self.requests), None)
        return {
            "in_flight": len(self.requests),
            "oldest_s": None if oldest is None else _age(oldest.since, now),
            "served": self.served,
            "sessions": self._sessions(),
            "paths": dict(self._paths),
        }


class Table:
    """The requests of all servers of a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._servers: dict[str, ServerTable] = {}

    def add_server(self, name: str, sessions: Callable[[], int] = int) -> ServerTable:
        """Have a server listed; `sessions` counts those it holds."""
        self._servers[name] = server = ServerTable(name, sessions, self._clock)
        return server

    def snapshot(self, limit: int = MOST_ROWS, rollouts: Collection[str] | None = None) -> dict[str, Any]:
        """Counts of every server, and the `limit` oldest requests of each: those of some rollouts, where named."""
        now = self._clock()
        named = None if rollouts is None else frozenset(rollouts)
        requests = (
            request
            for server in self._servers.values()
            for request in islice(_of(server.requests, named), max(0, min(limit, MOST_ROWS)))
        )
        counts = {name: server.counts(now) for name, server in self._servers.items()}
        rows = [request.row(now) for request in requests]
        facts = {"pid": os.getpid(), "loop_lag_s": loop_lag_seconds(), "backends": troubles()}
        return {**facts, "servers": counts, "requests": rows}

    def answer(self, op: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Operation `in_flight` with `limit` and `rollouts`, as `control_socket` hands it on."""
        if op != "in_flight":
            raise unknown_operation(op, ["in_flight"])
        rollouts = arguments.get("rollouts")
        return self.snapshot(int(arguments.get("limit", MOST_ROWS)), rollouts if isinstance(rollouts, list) else None)


def _of(requests: Iterable[Request], rollouts: frozenset[str] | None) -> Iterable[Request]:
    return requests if rollouts is None else (request for request in requests if request.rollout in rollouts)


table = Table()
"""This process's."""


class InFlightMiddleware:
    """Keeps the requests of a server in the table, and has the code that answers them know their rollout."""

    def __init__(self, app: ASGIApp, *, server: ServerTable) -> None:
        self.app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, rollout = _path_and_rollout(scope)
        request = self._server.began(path, rollout)
        token = _current.set(request)
        try:
            await self.app(scope, receive, send)
        finally:
            self._server.ended(request)
            _current.reset(token)


def request_of(frame: FrameType, task: asyncio.Task[Any] | None) -> Request | None:
    """The request that a thread, stopped at a frame in the middle of a task, answers; None where that can't be told."""
    at: FrameType | None = frame
    while at is not None:
        if at.f_code is InFlightMiddleware.__call__.__code__:
            found = at.f_locals.get("request")
            return found if isinstance(found, Request) else None
        at = at.f_back
    if task is not None and sys.version_info >= (3, 12):  # a task of its own, which the request's has begun
        return task.get_context().get(_current)
    return None


def rollout_in(scope: Scope) -> str | None:
    """The rollout that a request's header names."""
    for name, value in scope["headers"]:
        if name == _HEADER:
            return str(value.decode("latin-1")[:_LONGEST_ROLLOUT])
    return None


def _path_and_rollout(scope: Scope) -> tuple[str, str | None]:
    path: str = scope["path"]
    rollout = rollout_in(scope)
    if path.startswith(_PREFIX) and (found := split_rollout_prefix(path)) is not None:
        return found[2], rollout or found[0]
    return path, rollout


def _age(since: float, now: float) -> float:
    return round(max(0.0, now - since), 3)
