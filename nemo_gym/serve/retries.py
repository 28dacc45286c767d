"""Which failed requests are tried again, how often and after what pause."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import uuid4

import aiohttp

from nemo_gym.schema.endpoint_errors import is_no_http
from nemo_gym.serve.connections import Connecting

IDEMPOTENCY_HEADER = "X-NeMo-Gym-Idempotency-Key"
"""A request that carries it may be sent again: its receiver recognises the key and repeats the stored answer."""

REPEATED_HEADER = "X-NeMo-Gym-Repeated"
"""Marks a request that may have reached its receiver before, so that one that took another's place can tell."""

_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
_STALE_AFTER_IDLE_SECONDS = 1.0
_STALE_WITHIN_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 5.0


class Fault(Enum):
    """What went wrong between two processes; the value is the failure kind a record carries."""

    UNREACHABLE = "transport_unreachable"
    DROPPED = "transport_peer_drop"
    TIMED_OUT = "transport_timeout"
    OUT_OF_RESOURCES = "transport_local_resource"


@dataclass(frozen=True)
class Allowance:
    """How many tries a fault gets, the first included, and for how many seconds from the first failure."""

    tries: int
    seconds: float


ALLOWANCES = {
    Fault.UNREACHABLE: Allowance(3, 10),
    Fault.DROPPED: Allowance(5, 60),
    Fault.TIMED_OUT: Allowance(3, 30),
    Fault.OUT_OF_RESOURCES: Allowance(60, 120),
}


def fault_of(error: BaseException) -> Fault | None:
    """The transport fault an exception stands for; None when it is no transport's fault."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL):
        return Fault.OUT_OF_RESOURCES
    if isinstance(error, aiohttp.ClientSSLError):
        return None
    if isinstance(error, aiohttp.ClientConnectorError):
        return Fault.UNREACHABLE
    if isinstance(error, TimeoutError):
        return Fault.TIMED_OUT
    broke_off = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | aiohttp.ClientPayloadError)
    if broke_off or is_no_http(error):
        return Fault.DROPPED
    return None


def transport_failure_kind(error: BaseException) -> str | None:
    """The registered failure kind of a transport error; None for any other error."""
    fault = fault_of(error)
    return None if fault is None else fault.value


def may_repeat(fault: Fault, attempt: Connecting, method: str, headers: Mapping[str, str], now: float) -> bool:
    """Whether sending the request again can't run its effect twice.

    True when nothing reached the peer, when the peer had closed an idle connection just as it was used again, when the
    method promises it, or when the connection broke under a request that carries an idempotency key. (A timeout is the
    caller's own decision to give up: a key doesn't prolong it.)
    """
    if fault in (Fault.UNREACHABLE, Fault.OUT_OF_RESOURCES) or not attempt.connected:
        return True
    if method.upper() in _REPEATABLE_METHODS:
        return True
    return fault is Fault.DROPPED and (has_key(headers) or _was_stale(attempt, now))


def has_key(headers: Iterable[str]) -> bool:
    """Whether a request with headers of these names is one its receiver recognises when it comes again."""
    return any(name.lower() in _KEYS for name in headers)


def with_key(headers: Any) -> dict[str, str]:
    """The headers of a request, with a key of its own unless they have one."""
    pairs = dict(headers.items() if isinstance(headers, Mapping) else headers or ())
    return pairs if has_key(pairs) else {**pairs, IDEMPOTENCY_HEADER: uuid4().hex}


_KEYS = frozenset({IDEMPOTENCY_HEADER.lower(), "idempotency-key"})


def _was_stale(attempt: Connecting, now: float) -> bool:
    """No server closes a connection for idleness within a second; a later drop may come after the work was done."""
    idle = attempt.idle_seconds
    return idle is not None and idle >= _STALE_AFTER_IDLE_SECONDS and now - attempt.sent_at < _STALE_WITHIN_SECONDS


@dataclass
class Patience:
    """What is left of the allowance of one request; `limit` is the caller's own number of tries, without a clock."""

    limit: int | None = None
    tries: int = 0
    first_failure: float | None = None

    def pause_after(self, fault: Fault, now: float) -> float | None:
        """Seconds to wait before the next try after a failure at `now`; None when it is over."""
        self.tries += 1
        self.first_failure = now if self.first_failure is None else self.first_failure
        allowed = ALLOWANCES[fault]
        if self.tries >= (allowed.tries if self.limit is None else self.limit):
            return None
        pause = min(_MAX_PAUSE_SECONDS, 0.1 * 2.0 ** min(self.tries, 10)) * random.uniform(0.5, 1.0)
        if self.limit is None and now + pause - self.first_failure > allowed.seconds:
            return None
        return pause
