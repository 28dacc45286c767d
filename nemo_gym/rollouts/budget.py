"""How long rollouts take, and when it is too late to start another one."""

from __future__ import annotations

import math
import random
import time
from bisect import insort
from collections.abc import Callable

_KEPT = 4096
_SAMPLES_FOR_MARGIN = 5
_MARGIN_QUANTILE = 0.75


class DispatchLatencyTracker:
    """Durations of the rollouts completed so far, and how many were never started.

    Quantiles come from at most 4,096 of the durations, drawn evenly; they are exact up to that many.
    """

    def __init__(self) -> None:
        self._ordered: list[float] = []
        self._completed = 0
        self._seconds = 0.0
        self._longest = 0.0
        self._drained = 0
        self._random = random.Random(0)

    def record(self, seconds: float) -> None:
        """Note a completed rollout; durations that aren't positive say nothing."""
        if seconds <= 0:
            return
        self._completed += 1
        self._seconds += seconds
        self._longest = max(self._longest, seconds)
        if len(self._ordered) == _KEPT:
            if self._random.random() >= _KEPT / self._completed:
                return
            del self._ordered[self._random.randrange(_KEPT)]
        insort(self._ordered, seconds)

    def record_drained(self) -> None:
        self._drained += 1

    @property
    def drained(self) -> int:
        return self._drained

    def quantile(self, q: float) -> float | None:
        """The q-quantile in seconds, linear between neighbours; None before anything completed."""
        if not self._ordered:
            return None
        position = (len(self._ordered) - 1) * q
        low = int(position)
        high = min(low + 1, len(self._ordered) - 1)
        return self._ordered[low] + (self._ordered[high] - self._ordered[low]) * (position - low)

    def drain_margin(self, configured: float | None) -> float | None:
        """Seconds to keep free at the end of the budget: as configured, else what three of four rollouts need."""
        if configured is not None:
            return configured
        return self.quantile(_MARGIN_QUANTILE) if self._completed >= _SAMPLES_FOR_MARGIN else None

    def summary(self) -> str:
        """One line: how long rollouts took, in minutes, and how many were left out."""
        if not self._completed:
            return f"Dispatch: none completed; {self._drained} drained"
        quantiles = {name: self.quantile(q) or 0.0 for name, q in (("median", 0.5), ("p90", 0.9), ("p99", 0.99))}
        times = ", ".join(f"{name} {value / 60:.1f}" for name, value in {**quantiles, "max": self._longest}.items())
        return (
            f"Dispatch: {self._completed} completed, minutes: {times}; {self._seconds / 3600:.2f} task-hours; "
            f"{self._drained} drained"
        )


class Budget:
    """Whether there is still time for another rollout."""

    def __init__(
        self,
        seconds: float | None,
        margin: float | None,
        tracker: DispatchLatencyTracker,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadline = None if seconds is None else now() + seconds
        self._margin = margin
        self._tracker = tracker
        self._now = now

    def seconds_left(self) -> float:
        """What is left before the deadline, at least 0; infinite without one."""
        return math.inf if self._deadline is None else max(0.0, self._deadline - self._now())

    def is_spent(self) -> bool:
        """True when the deadline has passed or the next rollout would probably not end before it."""
        if self._deadline is None:
            return False
        remaining = self._deadline - self._now()
        margin = self._tracker.drain_margin(self._margin)
        return remaining <= 0 or (margin is not None and remaining < margin)
