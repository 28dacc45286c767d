"""How many rollouts may be in flight: the number asked for, and fewer while the model's provider asks for quiet."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

WINDOW_SECONDS = 10.0
"""The bound is halved at most once in this time."""
MOST_QUIET_SECONDS = 120.0
_FAST, _STEADY = 0.2, 0.5
"""Shares of that time which must pass without complaints before the bound grows: up to what is known to be good, then
up to what was last too much. To go beyond that takes the whole of it."""
_STEPS = 16
_TOLD_EPISODES = 5


class Admission:
    """An async context manager that holds its callers back, first come first served, where too many are inside.

    At most `asked` are inside at once; None is no bound. `pressed` halves the bound, down to 1, once what is in flight
    has shrunk to it. `eased` gives it back as TCP's slow start does: doubled up to half of what was last too much,
    afterwards by steps. `say` gets a sentence when it first backs off, and one when the number asked for holds again.
    """

    def __init__(
        self,
        asked: int | None,
        *,
        say: Callable[[str], None] = lambda text: None,
        window_seconds: float = WINDOW_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if asked is not None and asked < 1:
            raise ValueError(f"{asked} rollouts in flight: there must be at least one")
        self.asked = asked
        self.in_flight = 0
        self.backed_off = 0
        self._say = say
        self._window = window_seconds
        self._now = now
        self._ceiling: float = math.inf if asked is None else asked
        self._limit: float = self._ceiling
        self._good: float = self._ceiling
        self._too_much: float = math.inf
        self._is_falling = False
        self._halved_at = self._heard_at = self._raised_at = -math.inf
        self._quiet_until = -math.inf
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Admission:
        if not self._waiting and self._is_open():
            self.in_flight += 1
            return self
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave()
            else:
                turn.cancel()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    @property
    def limit(self) -> int | None:
        """How many may be inside now; None for no bound."""
        return None if math.isinf(self._limit) else int(self._limit)

    def pressed(self, seconds: float | None = None) -> None:
        """Somebody who is inside was told that there is too much; `seconds` is for how long nobody should come."""
        if seconds:
            self._quiet_until = max(self._quiet_until, self._now() + min(seconds, MOST_QUIET_SECONDS))
        self._heard_at = self._now()
        if self.in_flight > self._limit or self._now() - self._halved_at < self._window:
            return  # what was taken back last hasn't shown its effect yet
        if math.isinf(self._ceiling):
            self._ceiling = self._limit = max(1, self.in_flight)
        was_full = self._limit >= self._ceiling
        reached = min(self._limit, self.in_flight)
        self._limit = max(1, reached // 2)
        self._halved_at = self._now()
        if not self._is_falling:  # one long complaint says no more about what is good than its beginning did
            self._is_falling, self._good, self._too_much = True, self._limit, reached
        if was_full and self._limit < self._ceiling:
            self.backed_off += 1
            self._tell(
                f"The model's provider asks for fewer requests: at most {self._limit:.0f} rollouts at once now, "
                f"{self._ceiling:.0f} again when it has recovered."
            )

    def eased(self) -> None:
        """Somebody who was inside left without having heard of pressure."""
        wanted, share = self._next_limit()
        quiet = self._now() - max(self._heard_at, self._raised_at, self._quiet_until)
        if self._limit >= self._ceiling or quiet < share * self._window:
            return
        self._limit, self._is_falling, self._raised_at = wanted, False, self._now()
        if self._limit >= self._ceiling:
            self._tell(f"The model's provider has recovered: {self._ceiling:.0f} rollouts at once again.")
            self._ceiling = self._limit = math.inf if self.asked is None else self.asked
        self._admit()

    def _next_limit(self) -> tuple[float, float]:
        """The next higher bound, and the share of the window to wait for it."""
        if self._limit < self._good:
            return min(self._good, 2 * self._limit), _FAST
        wanted = min(self._ceiling, self._limit + max(1, self._ceiling // _STEPS))
        return wanted, _STEADY if wanted < self._too_much else 1.0

    def shown(self) -> str:
        """The same in a word for a progress line: how many are inside, of how many that may be."""
        if not self.in_flight:
            return "" if self.limit is None else f"at most {self.limit} at once"
        bound = "" if self.limit is None else f"/{self.limit}"
        return f"in flight={self.in_flight}{bound}"

    def snapshot(self) -> dict[str, Any]:
        """Numbers for people and programs: what was asked for, what holds now, and who is inside or waits."""
        return {
            "asked": self.asked,
            "limit": self.limit,
            "in_flight": self.in_flight,
            "waiting": sum(not turn.done() for turn in self._waiting),
            "backed_off": self.backed_off,
            "quiet_seconds": max(0.0, round(self._quiet_until - self._now(), 3)),
        }

    def _tell(self, text: str) -> None:
        if self.backed_off <= _TOLD_EPISODES:
            self._say(text)

    def _is_open(self) -> bool:
        return self.in_flight < self._limit and self._now() >= self._quiet_until

    def _leave(self) -> None:
        self.in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._is_open():
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
        if self._waiting and self._timer is None and self._now() < self._quiet_until:
            quiet = self._quiet_until - self._now()
            self._timer = asyncio.get_running_loop().call_later(quiet, self._quiet_is_over)

    def _quiet_is_over(self) -> None:
        self._timer = None
        self._admit()
