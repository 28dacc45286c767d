"""What a collection is doing right now: a table of the rollouts that have begun and not ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from weakref import WeakSet

from nemo_gym.config.keys import (
    ATTEMPT_INDEX_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.rollouts.admission import Admission

State: TypeAlias = Literal["queued", "running", "waiting_to_retry"]
STATES: tuple[State, ...] = ("queued", "running", "waiting_to_retry")
RATE_SECONDS = 60
MOST_ENTRIES = 1000


@dataclass(eq=False, slots=True)
class Entry:
    """One rollout: which one, whom it was sent to, and since when (monotonic and wall clock) it is in its state."""

    task: Any
    repeat: Any
    rollout_id: str | None
    attempt: int
    server: str
    state: State = "queued"
    since: float = 0.0
    since_wall: float = 0.0
    retries: int = 0

    def enter(self, state: State) -> None:
        self.state, self.since, self.since_wall = state, time.monotonic(), time.time()

    def as_json(self, now: float) -> dict[str, Any]:
        return {
            "task": self.task,
            "repeat": self.repeat,
            "rollout_id": self.rollout_id,
            "attempt": self.attempt,
            "server": self.server,
            "state": self.state,
            "since": self.since_wall,
            "seconds": round(max(0.0, now - self.since), 3),
            "retries": self.retries,
        }


class InFlight:
    """The rollouts of one dispatcher that are queued, running or waiting to be tried again, and how many ended."""

    def __init__(self, admission: Admission | None = None) -> None:
        self.admission = admission
        self.planned: int | None = None
        """How many rows come in all, where that is known."""
        self.retries = 0
        self._entries: dict[int, Entry] = {}
        self._ended: Counter[str] = Counter()
        self._rate = _Rate()
        _tables.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def entry(self, row: Mapping[str, Any], server: str) -> Iterator[Entry]:
        """The row's place in the table, for as long as it is under way."""
        entry = Entry(
            row.get(TASK_INDEX_KEY_NAME),
            row.get(ROLLOUT_INDEX_KEY_NAME),
            row.get(ROLLOUT_ID_KEY_NAME),
            row.get(ATTEMPT_INDEX_KEY_NAME) or 0,
            server,
        )
        entry.enter("queued")
        self._entries[id(entry)] = entry
        try:
            yield entry
        finally:
            del self._entries[id(entry)]

    def retrying(self, entry: Entry) -> None:
        """The rollout failed and waits to be sent again."""
        entry.retries += 1
        self.retries += 1
        entry.enter("waiting_to_retry")

    def ended(self, how: Literal["done", "failed", "drained"]) -> None:
        self._ended[how] += 1
        if how != "drained":
            self._rate.count()

    def snapshot(self, most: int = MOST_ENTRIES) -> dict[str, Any]:
        """The table as JSON values, the longest in their state first, at most `most` entries; from any thread."""
        now = time.monotonic()
        entries = sorted(self._entries.values(), key=lambda entry: entry.since)
        counts = Counter(entry.state for entry in entries)
        return {
            "entries": [entry.as_json(now) for entry in entries[:most]],
            "counts": {state: counts[state] for state in STATES},
            "ended": {how: self._ended[how] for how in ("done", "failed", "drained")},
            "retries": self.retries,
            "planned": self.planned,
            "per_second": self._rate.per_second(),
            "admission": None if self.admission is None else self.admission.snapshot(),
        }


_tables: WeakSet[InFlight] = WeakSet()


def snapshots() -> list[dict[str, Any]]:
    """The tables of this process in which anything happens or happened."""
    found = (table.snapshot() for table in list(_tables))
    return [table for table in found if table["entries"] or any(table["ended"].values())]


class _Rate:
    """Events per second over the last minute, or since the first one if that is less."""

    def __init__(self) -> None:
        self._buckets = [(0, 0)] * RATE_SECONDS
        self._first: float | None = None

    def count(self) -> None:
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        second = int(now)
        begun, events = self._buckets[second % RATE_SECONDS]
        self._buckets[second % RATE_SECONDS] = (second, events + 1 if begun == second else 1)

    def per_second(self) -> float:
        if self._first is None:
            return 0.0
        now = time.monotonic()
        events = sum(count for second, count in self._buckets if now - second < RATE_SECONDS)
        return round(events / min(RATE_SECONDS, max(1.0, now - self._first)), 3)
