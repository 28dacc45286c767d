"""The time a rollout has left: it travels with every call made for it, and every hop stays within it.

On the wire it is a number of seconds, so that clocks of different machines needn't agree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from nemo_gym.serve.errors import ServeError

if TYPE_CHECKING:
    from aiohttp import ClientTimeout

DEADLINE_HEADER = "X-NeMo-Gym-Deadline"
"""Seconds left for a request and everything it leads to."""

_SHARE_KEPT, _MOST_KEPT_SECONDS = 0.05, 0.5
_CLOCK_SLACK_SECONDS = 0.01
"""Timers of event loops may fire a little early."""

_deadline: ContextVar[float | None] = ContextVar("nemo_gym_deadline", default=None)
call_limit: ContextVar[ClientTimeout | None] = ContextVar("nemo_gym_call_limit", default=None)
"""The timeout of the next request that has none of its own: that of the stage the request belongs to."""


class DeadlineExceededError(ServeError, TimeoutError):
    """The time of the current rollout is over; as a failure it is a `transport_timeout`, answered with 504."""

    def __init__(self, message: str = "the rollout's deadline has passed") -> None:
        super().__init__(message)


def seconds_left() -> float | None:
    """What is left of the current deadline, below 0 when it has passed; None without one."""
    deadline = _deadline.get()
    return None if deadline is None else deadline - time.monotonic()


def is_over() -> bool:
    """Whether there is a deadline, and it has passed."""
    deadline = _deadline.get()
    return deadline is not None and deadline - time.monotonic() <= _CLOCK_SLACK_SECONDS


def deadline(seconds: float | None) -> AbstractContextManager[None]:
    """Everything inside has at most `seconds`, less where an outer deadline is nearer; None changes nothing.

    Calls to other servers end in time by themselves; other work has to look at `seconds_left`.
    """
    return _Deadline(seconds)


class _Deadline:
    __slots__ = ("_seconds", "_token")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        moment = _deadline.get()
        if self._seconds is not None:
            mine = time.monotonic() + self._seconds
            moment = mine if moment is None else min(moment, mine)
        self._token = _deadline.set(moment)

    def __exit__(self, *_: object) -> None:
        _deadline.reset(self._token)


@contextmanager
def lifted_deadline() -> Iterator[None]:
    """No deadline inside: for letting go of what a rollout holds, which has to be done when its time is over too."""
    token = _deadline.set(None)
    try:
        yield
    finally:
        _deadline.reset(token)


def within_call_limit(options: dict[str, Any]) -> dict[str, Any]:
    """A request's aiohttp options with the current call's timeout, unless they have one."""
    limit = call_limit.get()
    return options if limit is None or "timeout" in options else {**options, "timeout": limit}


def within_deadline(options: dict[str, Any], *, announce: bool) -> dict[str, Any]:
    """A request's aiohttp options, ending with the current deadline; `announce` tells it to the receiver.

    Raises DeadlineExceededError when nothing is left.
    """
    left = time_for_call()
    if left is None:
        return options
    bounded = {**options, "timeout": _shortened(options.get("timeout"), left)}
    if announce:
        bounded["headers"] = _with_header(options.get("headers"), announced(left))
    return bounded


def time_for_call() -> float | None:
    """The seconds a call made now may take, None for ever. Raises DeadlineExceededError when nothing is left."""
    left = seconds_left()
    if left is not None and left <= 0:
        raise DeadlineExceededError
    return left


def announced(left: float) -> str:
    """What a receiver is told of `left` seconds: a little less, so that it can say in time that time ran out."""
    return f"{left - min(_MOST_KEPT_SECONDS, left * _SHARE_KEPT):.3f}"


def _shortened(timeout: Any, left: float) -> ClientTimeout:
    from aiohttp import ClientTimeout

    if not isinstance(timeout, ClientTimeout):
        given = timeout if isinstance(timeout, int | float) and timeout > 0 else None
        return ClientTimeout(total=left if given is None else min(given, left))
    return ClientTimeout(
        total=min(timeout.total, left) if timeout.total else left,
        connect=timeout.connect,
        sock_connect=timeout.sock_connect,
        sock_read=timeout.sock_read,
        ceil_threshold=timeout.ceil_threshold,
    )


def _with_header(headers: Any, value: str) -> dict[str, str]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    kept = {name: given for name, given in pairs if name.lower() != DEADLINE_HEADER.lower()}
    return {**kept, DEADLINE_HEADER: value}
