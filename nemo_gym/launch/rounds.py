"""Looking at something every so many seconds, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Rounds:
    """Calls `look` every `seconds` from `start` to `stop`, first after that time; `stop` waits for a look under way."""

    def __init__(self, look: Callable[[], None], *, seconds: float, name: str) -> None:
        self._look = look
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def are_over(self) -> bool:
        return self._over.is_set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End them. Safe to call again, and before they began."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self._look()
