"""What all clients of one backend know together: until when it wants quiet, and whether it has refused the key."""

import asyncio
import hashlib
import random
from dataclasses import dataclass, field
from time import monotonic as now
from weakref import WeakKeyDictionary

from nemo_gym.schema.backend_answers import RATE_LIMIT_ERROR_CODES, Verdict

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_TRIP_LASTS_SECONDS = 300.0
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


@dataclass
class Endpoint:
    """Shared state of one (base URL, key) in one event loop."""

    quiet_until: float = 0.0
    told_until: float = 0.0
    trip: Trip | None = None

    def ask_for_quiet(self, seconds: float) -> None:
        """No client calls within the next `seconds`, but nobody is kept waiting longer than a call may last."""
        self.quiet_until = max(self.quiet_until, now() + min(seconds, _BUDGET_SECONDS))

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
    return known.setdefault((base_url, hashlib.sha256(api_key.encode()).hexdigest()), Endpoint())


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
