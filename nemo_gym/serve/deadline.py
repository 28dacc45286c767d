"""The time a rollout has left: it travels with every call made for it, and every hop stays within it.

On the wire it is a number of seconds, so that clocks of different machines needn't agree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Everything inside has at most `seconds`, less where an outer deadline is nearer; None changes nothing.

    Calls to other servers end in time by themselves; other work has to look at `seconds_left`.
    """
    outer = _deadline.get()
    mine = None if seconds is None else time.monotonic() + seconds
    token = _deadline.set(min((moment for moment in (outer, mine) if moment is not None), default=None))
    try:
        yield
    finally:
        _deadline.reset(token)


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

    The receiver is told a little less than is left, so that the server where time ran out can say so in time. Raises
    DeadlineExceededError when nothing is left.
    """
    left = seconds_left()
    if left is None:
        return options
    if left <= 0:
        raise DeadlineExceededError
    bounded = {**options, "timeout": _shortened(options.get("timeout"), left)}
    if announce:
        told = left - min(_MOST_KEPT_SECONDS, left * _SHARE_KEPT)
        bounded["headers"] = _with_header(options.get("headers"), f"{told:.3f}")
    return bounded


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
