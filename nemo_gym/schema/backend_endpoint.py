"""What all clients of one backend know together: until when it wants quiet, and whether it has refused the key."""

import asyncio
import hashlib
import random
from dataclasses import dataclass, field
from time import monotonic as now
from typing import Any
from weakref import WeakKeyDictionary

from nemo_gym.schema.backend_answers import RATE_LIMIT_ERROR_CODES, Verdict, without_userinfo

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_TRIP_LASTS_SECONDS = 60.0
_SAME_NEWS_SECONDS = 5.0
_BUDGET_SECONDS = 120.0
_INTERNAL_BUDGET_SECONDS = 600.0


@dataclass(frozen=True)
class Trip:
    """The answer that ended a backend's use for a while: status, body, URL."""

    status: int
    content: bytes
    url: str
    expires: float = field(default_factory=lambda: now() + _TRIP_LASTS_SECONDS)

    @property
    def active(self) -> bool:
        """False once the backend may be tried again."""
        return now() < self.expires

    @property
    def reason(self) -> str:
        """What it amounts to."""
        return "says that the budget or quota is spent" if self.status == 429 else "refuses the API key"


@dataclass
class Endpoint:
    """Shared state of one (base URL, key) in one event loop."""

    base_url: str = ""
    quiet_until: float = 0.0
    quiet_status: int | None = None
    told_until: float = 0.0
    trip: Trip | None = None
    told_of: set[int] = field(default_factory=set)

    def ask_for_quiet(self, seconds: float, status: int | None = None) -> None:
        """No client calls within the next `seconds`, but nobody is kept waiting longer than a call may last."""
        self.quiet_until = max(self.quiet_until, now() + min(seconds, _BUDGET_SECONDS))
        self.quiet_status = status

    def take_trip(self, trip: Trip) -> bool:
        """No client calls until the trip expires. True if nobody was told of one like it: that is the caller's job."""
        self.trip = trip
        is_new = trip.status not in self.told_of
        self.told_of.add(trip.status)
        return is_new

    def trouble(self) -> dict[str, Any] | None:
        """What keeps clients from calling now, as plain values, the answer's text left out; None when nothing does."""
        quiet = round(self.quiet_until - now(), 1)
        trip = self.trip if self.trip is not None and self.trip.active else None
        if trip is not None:
            seconds = round(trip.expires - now(), 1)
            return {"url": self.base_url, "status": trip.status, "seconds": seconds, "refuses": trip.reason}
        if quiet > 0:
            return {"url": self.base_url, "status": self.quiet_status, "seconds": quiet, "refuses": None}
        return None

    def is_news(self) -> bool:
        """True if nobody has been told of the present quiet, or of most of it. Telling is then the caller's job."""
        news = self.quiet_until > self.told_until + _SAME_NEWS_SECONDS
        if news:
            self.told_until = self.quiet_until
        return news

    def wait(self) -> float:
        """Seconds until the backend may be called, spread a little so that waiters don't return in one burst."""
        remaining = self.quiet_until - now()
        return remaining + random.uniform(0.0, 0.1 * remaining) if remaining > 0 else 0.0


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], Endpoint]] = WeakKeyDictionary()
_outside_loops: dict[tuple[str, str], Endpoint] = {}


def endpoint_of(base_url: str, api_key: str) -> Endpoint:
    """The shared state of a backend in the running event loop."""
    try:
        known = _by_loop.setdefault(asyncio.get_running_loop(), {})
    except RuntimeError:
        known = _outside_loops
    key = (base_url, hashlib.sha256(api_key.encode()).hexdigest())
    if (endpoint := known.get(key)) is None:
        endpoint = known[key] = Endpoint(without_userinfo(base_url))
    return endpoint


def troubles() -> list[dict[str, Any]]:
    """The backends that clients of the running event loop may not call now, each with status, seconds and reason."""
    try:
        known = _by_loop.get(asyncio.get_running_loop(), {})
    except RuntimeError:
        known = _outside_loops
    return [trouble for endpoint in known.values() if (trouble := endpoint.trouble()) is not None]


@dataclass
class Attempts:
    """The tries of one call: how many it may have, and for how many seconds it may wait between them.

    A rate-limited backend of the run itself gets as many tries as fit into its time: it may still be loading weights.
    """

    allowed: int
    internal: bool = False
    failures: int = 0
    budget: float = field(init=False)

    def __post_init__(self) -> None:
        self.budget = _INTERNAL_BUDGET_SECONDS if self.internal else _BUDGET_SECONDS

    def pause_after(self, status: int, verdict: Verdict, retry_after: float | None) -> float | None:
        """Seconds until the next try after a failed one: what the backend asked for, else doubling with jitter.

        None if there is no next try.
        """
        self.failures += 1
        if self.internal and status in RATE_LIMIT_ERROR_CODES:
            self.allowed += 1
        if verdict is Verdict.RETRY_ONCE:
            self.allowed = min(self.allowed, 2)
        return self._allowed_pause(retry_after)

    def pause_after_cut_off(self) -> float | None:
        """Seconds until the next try after an answer that broke off; None if there is no next try."""
        self.failures += 1
        return self._allowed_pause(None)

    def _allowed_pause(self, asked_for: float | None) -> float | None:
        longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures - 1, 16))
        pause = random.uniform(longest / 2, longest) if asked_for is None else asked_for
        return pause if self.failures < self.allowed and pause < self.budget else None
