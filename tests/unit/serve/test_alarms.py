"""Timers that ring a little late, and leave nothing behind when they don't."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nemo_gym.serve import alarms
from nemo_gym.serve.alarms import GRAIN_SECONDS, Alarm, ring_after

LONG = 600.0


class Timers:
    """The loop's clock, set by hand, and the timers that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = 1_000.0
        self.set: list[tuple[float, Any, tuple[Any, ...]]] = []
        self.cancelled = 0
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_at", self._call_at)

    def _call_at(self, moment: float, call: Any, *arguments: Any) -> Any:
        timer = (moment, call, arguments)
        self.set.append(timer)
        outer = self

        class Handle:
            def cancel(self) -> None:
                outer.cancelled += 1
                outer.set.remove(timer)

        return Handle()

    def ring(self) -> None:
        for moment, call, arguments in list(self.set):
            self.now = moment
            self.set.remove((moment, call, arguments))
            call(*arguments)


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Timers]:
    with monkeypatch.context() as patched:
        yield Timers(patched)


async def test_it_rings_in_time_and_at_most_a_grain_late(timers: Timers) -> None:
    rung: list[float] = []
    for late in (0.0, 0.03, 0.0999):
        timers.now = 1_000.0 + late
        ring_after(LONG, lambda late=late: rung.append(timers.now - late))  # type: ignore[misc]
    timers.ring()
    assert len(rung) == 3
    assert all(1_000.0 + LONG <= moment <= 1_000.0 + LONG + GRAIN_SECONDS + 1e-9 for moment in rung)


async def test_many_share_a_timer(timers: Timers) -> None:
    for _ in range(1_000):
        ring_after(LONG, lambda: None)
    assert len(timers.set) == 1


async def test_a_timer_goes_with_the_last_of_its_alarms(timers: Timers) -> None:
    rung: list[str] = []
    first, second = ring_after(LONG, lambda: rung.append("first")), ring_after(LONG, lambda: rung.append("second"))
    first.cancel()
    first.cancel()
    assert (len(timers.set), timers.cancelled) == (1, 0)
    second.cancel()
    assert (len(timers.set), timers.cancelled) == (0, 1)
    assert alarms._ticks_of[asyncio.get_running_loop()] == {}
    third = ring_after(LONG, lambda: rung.append("third"))
    first.cancel()
    assert len(timers.set) == 1
    timers.ring()
    third.cancel()
    assert rung == ["third"]


async def test_one_that_cancels_another_at_the_last_moment_is_no_trouble(timers: Timers) -> None:
    rung: list[str] = []
    later: list[Any] = []
    ring_after(LONG, lambda: later[0].cancel())
    later.append(ring_after(LONG, lambda: rung.append("late")))
    timers.ring()
    assert alarms._ticks_of[asyncio.get_running_loop()] == {}
    assert rung in ([], ["late"])


async def test_short_limits_are_exact() -> None:
    rung = asyncio.Event()
    timer = ring_after(0.01, rung.set)
    assert not isinstance(timer, Alarm)
    await asyncio.wait_for(rung.wait(), 30)


async def test_each_loop_has_its_own() -> None:
    def elsewhere() -> set[int]:
        async def look() -> set[int]:
            ring_after(LONG, lambda: None).cancel()
            return set(alarms._ticks_of[asyncio.get_running_loop()])

        return asyncio.run(look())

    mine = ring_after(LONG, lambda: None)
    assert await asyncio.to_thread(elsewhere) == set()
    assert len(alarms._ticks_of[asyncio.get_running_loop()]) == 1
    mine.cancel()
