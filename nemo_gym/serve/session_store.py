"""What a server remembers of each session, for as long as somebody comes back for it."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from starlette.exceptions import HTTPException

from nemo_gym.schema.failure_kinds import SESSION_EXPIRED
from nemo_gym.serve.errors import ServeError
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from nemo_gym.serve.sessions import current_session_id

IDLE_SECONDS = 24 * 60 * 60
MAX_SESSIONS = 65_536
REMEMBERED_ENDS = 65_536

StateT = TypeVar("StateT")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])
LOG = logging.getLogger(__name__)


class SessionExpiredError(ServeError, HTTPException):
    """A session that was there is gone. Answered with 410; `session_expired` is the failure's kind."""

    def __init__(self, session_id: str, why: str, *, server: str = "") -> None:
        text = f"{SESSION_EXPIRED}: the session {session_id!r} {why}; seed a new one."
        cause = Cause(server, type(self).__name__, text, 410, SESSION_EXPIRED).header().decode("ascii")
        HTTPException.__init__(self, 410, text, {CAUSE_HEADER: cause})


@dataclass
class _Kept(Generic[StateT]):
    state: StateT
    used_at: float


class SessionStore(MutableMapping[str, StateT], Generic[StateT]):
    """A dict by session id that forgets.

    A session nobody touched for `idle_seconds`, and the longest untouched one past `max_sessions`, are dropped; so is a
    session that was verified, unless `keep_after_verify`. Touching a dropped session raises SessionExpiredError, where
    a dict would begin it anew; only assigning opens it again. `release` is called with every state that goes.
    """

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        max_sessions: int = MAX_SESSIONS,
        keep_after_verify: bool = False,
        release: Callable[[StateT], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keep_after_verify = keep_after_verify
        self.server = ""
        self._idle_seconds = idle_seconds
        self._max_sessions = max_sessions
        self._release = release
        self._clock = clock
        self._kept: OrderedDict[str, _Kept[StateT]] = OrderedDict()
        self._ends: OrderedDict[str, str] = OrderedDict()

    def __getitem__(self, session_id: str) -> StateT:
        """The state; KeyError for a session never opened, SessionExpiredError for one that is gone."""
        self._drop_idle()
        kept = self._kept.get(session_id)
        if kept is None:
            if session_id in self._ends:
                raise SessionExpiredError(session_id, self._ends[session_id], server=self.server)
            raise KeyError(session_id)
        kept.used_at = self._clock()
        self._kept.move_to_end(session_id)
        return kept.state

    def __setitem__(self, session_id: str, state: StateT) -> None:
        self._drop_idle()
        self._ends.pop(session_id, None)
        self._kept[session_id] = _Kept(state, self._clock())
        self._kept.move_to_end(session_id)
        while len(self._kept) > self._max_sessions:
            self._drop_first(f"was the longest unused of more than {self._max_sessions}")

    def __delitem__(self, session_id: str) -> None:
        self[session_id]
        self.close(session_id)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._kept))

    def __len__(self) -> int:
        self._drop_idle()
        return len(self._kept)

    def find(self, session_id: str) -> StateT | None:
        """The state without touching it; None for a session that isn't there, for whatever reason."""
        self._drop_idle()
        kept = self._kept.get(session_id)
        return None if kept is None else kept.state

    def close(self, session_id: str) -> bool:
        """Drop a session; whether there was one. Again, or for one never opened, nothing happens.

        What `release` raises comes through, and the session stays, so that the caller can try again.
        """
        kept = self._kept.get(session_id)
        if kept is None:
            return False
        if self._release is not None:
            self._release(kept.state)
        self._forget(session_id, "was closed")
        return True

    def _drop_idle(self) -> None:
        deadline = self._clock() - self._idle_seconds
        while self._kept and next(iter(self._kept.values())).used_at <= deadline:
            self._drop_first(f"was not used for {self._idle_seconds / 3600:g} hours")

    def _drop_first(self, why: str) -> None:
        session_id, kept = next(iter(self._kept.items()))
        try:
            if self._release is not None:
                self._release(kept.state)
        except Exception:
            LOG.exception("Releasing the session %r, which %s, failed.", session_id, why)
        self._forget(session_id, why)

    def _forget(self, session_id: str, why: str) -> None:
        del self._kept[session_id]
        self._ends[session_id] = why
        if len(self._ends) > REMEMBERED_ENDS:
            self._ends.popitem(last=False)


def stores_of(owner: object) -> list[SessionStore[Any]]:
    """The stores a server holds, in its fields or its private attributes."""
    held = (*vars(owner).values(), *(getattr(owner, "__pydantic_private__", None) or {}).values())
    return [value for value in held if isinstance(value, SessionStore)]


def after_verify(owner: object, handler: HandlerT) -> HandlerT:
    """The handler; once it has answered, the request's session is closed in every store that doesn't keep it."""

    def close() -> None:
        for store in stores_of(owner):
            if not store.keep_after_verify:
                _close_quietly(store)

    return _followed_by(close, handler)


def after_close(owner: object, handler: HandlerT) -> HandlerT:
    """The handler; once it has answered, the request's session is closed in every store."""

    def close() -> None:
        for store in stores_of(owner):
            store.close(current_session_id() or "")

    return _followed_by(close, handler)


def _close_quietly(store: SessionStore[Any]) -> None:
    """A release that fails must not cost the verdict; the state stays until it is idle for too long."""
    try:
        store.close(current_session_id() or "")
    except Exception:
        LOG.exception("Releasing the session %r after it was verified failed.", current_session_id())


def _followed_by(action: Callable[[], None], handler: HandlerT) -> HandlerT:
    if not inspect.iscoroutinefunction(inspect.unwrap(handler)):

        @functools.wraps(handler)
        def answer_now(*args: Any, **kwargs: Any) -> Any:
            answer = handler(*args, **kwargs)
            action()
            return answer

        return cast(HandlerT, answer_now)

    @functools.wraps(handler)
    async def answer(*args: Any, **kwargs: Any) -> Any:
        result = await handler(*args, **kwargs)
        action()
        return result

    return cast(HandlerT, answer)
