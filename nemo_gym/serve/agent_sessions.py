"""Sessions an environment server opens at an agent: seeded once, closed once, and safe to ask for twice."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.requests import Request

from nemo_gym.schema.episodes import EpisodeId, TaskId
from nemo_gym.schema.failure_kinds import SESSION_EXPIRED, SESSION_LOST
from nemo_gym.schema.observations import AgentObservationBundle
from nemo_gym.schema.sandbox_access import SandboxAccess
from nemo_gym.schema.tool_access import ToolAccess
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from nemo_gym.serve.lost_sessions import LOST_TEXT, own_generation
from nemo_gym.serve.server_log import server_log

AGENT_SESSION_COOKIE_KEY = "agent_session_id"
MAX_SESSION_ID_CHARS = 200
MAX_OPEN_SESSIONS = 65_536
IDLE_SECONDS = 24 * 60 * 60
"""After this long without a request an open session is released, as if it had been closed without a receipt."""

LOG = server_log(__name__)


def unique_by_name(tool_accesses: list[ToolAccess]) -> list[ToolAccess]:
    """The accesses themselves; ValueError when two have the same name."""
    names = [access.name for access in tool_accesses]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"tool accesses must have different names, these repeat: {', '.join(repeated)}")
    return tool_accesses


class AgentSeedSessionRequest(BaseModel):
    """Opens an agent's session for an episode."""

    model_config = ConfigDict(extra="forbid")

    agent_session_id: str = Field(min_length=1, max_length=MAX_SESSION_ID_CHARS)
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: list[ToolAccess] = Field(default_factory=list)
    sandbox_access: SandboxAccess | None = None

    @field_validator("tool_accesses")
    @classmethod
    def require_unique_tool_names(cls, tool_accesses: list[ToolAccess]) -> list[ToolAccess]:
        return unique_by_name(tool_accesses)


class AgentSeedSessionResponse(BaseModel):
    model_config = ConfigDict(extra="forbid")

    agent_session_id: str


class AgentCloseSessionRequest(BaseModel):
    """Ends an agent's session."""

    model_config = ConfigDict(extra="forbid")

    agent_session_id: str = Field(max_length=MAX_SESSION_ID_CHARS)
    episode_id: EpisodeId


class AgentCloseSessionResponse(BaseModel):
    """What the agent saw, and the cookies of the resources server it leaves behind."""

    model_config = ConfigDict(extra="forbid")

    agent_session_id: str
    agent_observations: AgentObservationBundle | None = None
    resources_cookies: dict[str, str] | None = None


@dataclass
class AgentSessionState:
    """What an agent keeps for a session; harnesses add their own."""

    request: AgentSeedSessionRequest


class AgentSessionSetupError(Exception):
    """Setting a session up failed halfway: `state` is what must still be released, `error` is why."""

    def __init__(self, state: AgentSessionState, *, error: BaseException) -> None:
        super().__init__(str(error))
        self.state = state
        self.error = error


@dataclass
class _AgentSessionRecord:
    """One session id: its state while open, its receipt once closed. Changed only by the holder of `lock`."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    state: AgentSessionState | None = None
    closing: bool = False
    episode_id: EpisodeId | None = None
    close_response: AgentCloseSessionResponse | None = None
    expires_at: float = float("inf")
    used_at: float = field(default_factory=time.monotonic)

    @property
    def is_unattended(self) -> bool:
        """Open, and nobody works on it."""
        return self.close_response is None and not self.lock.locked()


SeedHook = Callable[[AgentSeedSessionRequest], Awaitable[AgentSessionState]]
CloseHook = Callable[[AgentSessionState], Awaitable[AgentCloseSessionResponse]]


@dataclass(frozen=True)
class AgentSessions:
    """The sessions of one agent, the longest unused first.

    `closed` holds the records with a receipt, in the order they were closed. `release` is given the state of sessions
    that nobody closed.
    """

    records: dict[str, _AgentSessionRecord]
    closed: OrderedDict[str, _AgentSessionRecord]
    retry_window_seconds: float
    release: CloseHook | None = None

    async def seed(self, marker: str | None, body: AgentSeedSessionRequest, hook: SeedHook) -> AgentSeedSessionResponse:
        """Open a session; the same request again succeeds. `marker` is the id in the caller's cookie.

        Raises HTTPException 409 for an id that is closed, closing, expired, another's or asked for differently.
        """
        session_id = body.agent_session_id
        _refuse_other(marker, session_id)
        async with self.locked(session_id) as record:
            if record.close_response is not None or record.closing:
                raise _conflict(f"agent session {session_id!r} is closed")
            if record.state is None:
                if marker is not None:
                    raise _conflict(f"agent session {session_id!r} has expired")
                await _open(record, body, hook)
            elif record.state.request != body:
                raise _conflict(f"agent session {session_id!r} was seeded with another request")
            return AgentSeedSessionResponse(agent_session_id=session_id)

    async def close(
        self, marker: str | None, body: AgentCloseSessionRequest, hook: CloseHook
    ) -> AgentCloseSessionResponse:
        """Close a session and keep the receipt for repeated calls; a failing hook keeps the state for another try.

        Raises HTTPException 409 for an id that has expired, is another's or belongs to another episode.
        """
        session_id = body.agent_session_id
        _refuse_other(marker, session_id)
        async with self.locked(session_id) as record:
            if record.episode_id is not None and record.episode_id != body.episode_id:
                raise _conflict(f"agent session {session_id!r} belongs to another episode")
            if record.close_response is None:
                if record.state is None and marker is not None:
                    raise _conflict(f"the close receipt of agent session {session_id!r} has expired")
                self._keep_receipt(body, record, await _release(record, session_id, hook))
            assert record.close_response is not None
            return record.close_response.model_copy(deep=True)

    def require(self, session_id: str) -> AgentSessionState:
        """The state of an open session; HTTPException 409 when there is none."""
        record = self.records.get(session_id)
        if record is None:
            raise _expired(session_id)
        if record.state is None or record.closing:
            raise _conflict(f"agent session {session_id!r} is not open")
        self._touch(session_id, record)
        return record.state

    @asynccontextmanager
    async def locked(self, session_id: str) -> AsyncIterator[_AgentSessionRecord]:
        """The record of an id, held alone; it stays only if it has a state or a receipt afterwards."""
        while True:
            self._forget_expired()
            record = self.records.setdefault(session_id, _AgentSessionRecord())
            async with record.lock:
                if self.records.get(session_id) is not record:
                    continue
                self._touch(session_id, record)
                try:
                    yield record
                finally:
                    if record.state is None and record.close_response is None:
                        del self.records[session_id]
                return

    def _keep_receipt(
        self, body: AgentCloseSessionRequest, record: _AgentSessionRecord, response: AgentCloseSessionResponse
    ) -> None:
        record.state = None
        record.episode_id = body.episode_id
        record.close_response = response
        record.expires_at = time.monotonic() + self.retry_window_seconds
        self.closed[body.agent_session_id] = record

    def _forget_expired(self) -> None:
        now = time.monotonic()
        while self.closed and next(iter(self.closed.values())).expires_at <= now:
            session_id, record = self.closed.popitem(last=False)
            if self.records.get(session_id) is record:
                del self.records[session_id]
        for session_id in self._idle_since(now - IDLE_SECONDS):
            self._drop(session_id, "was not used for 24 hours")
        if (excess := len(self.records) - len(self.closed) - MAX_OPEN_SESSIONS) > 0:
            for session_id in list(islice(self._open_ids(), excess)):
                self._drop(session_id, f"was the longest unused of more than {MAX_OPEN_SESSIONS}")

    def _drop(self, session_id: str, why: str) -> None:
        state = self.records.pop(session_id).state
        LOG.warning("Agent session %s %s and is released.", session_id, why)
        if self.release is not None and state is not None:
            _in_background(self.release(state), session_id)

    def _touch(self, session_id: str, record: _AgentSessionRecord) -> None:
        record.used_at = time.monotonic()
        self.records[session_id] = self.records.pop(session_id, record)

    def _idle_since(self, deadline: float) -> list[str]:
        """Open sessions that nobody has used, or works on, since then."""
        oldest = takewhile(lambda item: item[1].used_at <= deadline, self.records.items())
        return [session_id for session_id, record in oldest if record.is_unattended]

    def _open_ids(self) -> Iterator[str]:
        """The longest unused first."""
        return (session_id for session_id, record in self.records.items() if record.is_unattended)


_releasing: set[asyncio.Task[None]] = set()


def _in_background(release: Awaitable[Any], session_id: str) -> None:
    async def run() -> None:
        try:
            await release
        except Exception:
            LOG.exception("Releasing agent session %s failed.", session_id)

    task = asyncio.get_running_loop().create_task(run())
    _releasing.add(task)
    task.add_done_callback(_releasing.discard)


async def _open(record: _AgentSessionRecord, body: AgentSeedSessionRequest, hook: SeedHook) -> None:
    try:
        record.state = await hook(body.model_copy(deep=True))
    except AgentSessionSetupError as failure:
        record.state, record.closing = failure.state, True
        raise failure.error from failure
    finally:
        record.episode_id = body.episode_id


async def _release(record: _AgentSessionRecord, session_id: str, hook: CloseHook) -> AgentCloseSessionResponse:
    if record.state is None:
        return AgentCloseSessionResponse(agent_session_id=session_id)
    record.closing = True
    return await hook(record.state)


def session_marker(request: Request | None) -> str | None:
    """The session id in the caller's cookie; HTTPException 409 when it is no id."""
    session: dict[str, Any] = request.scope.get("session") or {} if request is not None else {}
    if AGENT_SESSION_COOKIE_KEY not in session:
        return None
    marker = session[AGENT_SESSION_COOKIE_KEY]
    if not isinstance(marker, str) or not marker:
        raise _conflict("the agent session in the cookie is not an id")
    return marker


def _refuse_other(marker: str | None, session_id: str) -> None:
    if marker is not None and marker != session_id:
        raise _conflict(f"the cookie belongs to agent session {marker!r}, not to {session_id!r}")


def _expired(session_id: str) -> HTTPException:
    """For a session whose cookie a caller has, and nothing else is left of.

    In a process that took another's place it went with that one, for all that can be known.
    """
    if own_generation():
        cause = Cause("", "SessionLostError", LOST_TEXT, 410, SESSION_LOST).header().decode("ascii")
        return HTTPException(status_code=410, detail=LOST_TEXT, headers={CAUSE_HEADER: cause})
    detail = f"agent session {session_id!r} is not open: it has expired"
    cause = Cause("", "AgentSessionExpired", detail, 409, SESSION_EXPIRED).header().decode("ascii")
    return HTTPException(status_code=409, detail=detail, headers={CAUSE_HEADER: cause})


def _conflict(detail: str) -> HTTPException:
    return HTTPException(status_code=409, detail=detail)
