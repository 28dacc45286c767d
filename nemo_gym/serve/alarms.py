"""Timers for limits that are hardly ever reached: they cost next to nothing when they don't ring, and ring a bit late.

An event loop keeps its own timers sorted, and removes those that were cancelled from time to time; a server that sets
two for every request spends a tenth of its time on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

GRAIN_SECONDS = 0.1
"""An alarm rings at most so late."""

_EXACT_BELOW_SECONDS = 5.0
"""Shorter limits are kept to the millisecond."""


class Alarm:
    """A limit that was set, to be cancelled when what it limits is over."""

    __slots__ = ("_tick", "ring")

    def __init__(self, ring: Callable[[], object], tick: _Tick) -> None:
        self.ring = ring
        self._tick = tick

    def cancel(self) -> None:
        self._tick.drop(self)


class _Tick:
    """The alarms that ring together, on one timer of the loop for as long as there are any."""

    __slots__ = ("_alarms", "_all", "_number", "_timer")

    def __init__(self, number: int, ticks: dict[int, _Tick], loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        self._all = ticks
        self._alarms: dict[Alarm, None] = {}
        self._timer = loop.call_at(number * GRAIN_SECONDS, self._ring)
        ticks[number] = self

    def add(self, ring: Callable[[], object]) -> Alarm:
        alarm = Alarm(ring, self)
        self._alarms[alarm] = None
        return alarm

    def __len__(self) -> int:
        return len(self._alarms)

    def drop(self, alarm: Alarm) -> None:
        self._alarms.pop(alarm, None)
        if not self._alarms and self._all.get(self._number) is self:
            self._timer.cancel()
            del self._all[self._number]

    def _ring(self) -> None:
        self._all.pop(self._number, None)
        alarms, self._alarms = self._alarms, {}
        for alarm in alarms:
            alarm.ring()


_ticks_of: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _Tick]] = WeakKeyDictionary()


def ring_after(seconds: float, ring: Callable[[], object]) -> Alarm | asyncio.TimerHandle:
    """Have `ring`, which must not raise, called in the running loop after these seconds; cancel the result in time."""
    loop = asyncio.get_running_loop()
    if seconds < _EXACT_BELOW_SECONDS:
        return loop.call_later(seconds, ring)
    ticks = _ticks_of.get(loop)
    if ticks is None:
        ticks = _ticks_of[loop] = {}
    number = int((loop.time() + seconds) / GRAIN_SECONDS) + 1
    tick = ticks.get(number)
    return (_Tick(number, ticks, loop) if tick is None else tick).add(ring)


def pending() -> int:
    """How many of the running loop's alarms may still ring."""
    return sum(map(len, _ticks_of.get(asyncio.get_running_loop(), {}).values()))
