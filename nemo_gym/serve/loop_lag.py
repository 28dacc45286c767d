"""How late the event loop of a process is: what each request of its server waits before anybody looks at it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from weakref import WeakKeyDictionary

PROBE_SECONDS = 1.0
KEPT_SECONDS = 60.0


class LoopLag:
    """Looks every second how much later than asked the loop calls back. Made for the running loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._seen: deque[tuple[float, float]] = deque(maxlen=int(KEPT_SECONDS / PROBE_SECONDS))
        self._due = 0.0
        self._lock = threading.Lock()
        self._wait()

    def seconds(self) -> float:
        """The longest lag of the last minute, that of the moment included; from any thread."""
        now = time.monotonic()
        with self._lock:
            seen = [lag for at, lag in self._seen if now - at < KEPT_SECONDS]
        return max([0.0, now - self._due, *seen])

    def _wait(self) -> None:
        self._due = time.monotonic() + PROBE_SECONDS
        self._loop.call_later(PROBE_SECONDS, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        with self._lock:
            self._seen.append((now, max(0.0, now - self._due)))
        self._wait()


_probes: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopLag] = WeakKeyDictionary()


def watch_loop_lag() -> LoopLag:
    """The probe of the running loop, begun when it is first asked for."""
    loop = asyncio.get_running_loop()
    probe = _probes.get(loop)
    if probe is None:
        probe = _probes[loop] = LoopLag(loop)
    return probe


def loop_lag_seconds() -> float | None:
    """The longest lag of the last minute among the loops watched in this process; None while none is."""
    return max((probe.seconds() for probe in list(_probes.values())), default=None)
