"""Noticing servers that live and say nothing: asked now and then, with a word when one is silent for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.handover import TABLES_FOLDER_NAME
from nemo_gym.launch.tables import ask_all

ASK_EVERY_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
TOLD_AFTER_SECONDS = 30.0


@dataclass
class SilenceWatch:
    """Keeps, for every process that has a table of requests, when it last answered.

    `name_of` gives the words for a process by its pid; None for one that isn't known. `tell` gets a sentence, once for
    each silence of half a minute.
    """

    run_directory: Path
    name_of: Callable[[int], str | None]
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _answered: dict[int, float] = field(default_factory=dict)
    _told: set[int] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="gym-silence", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def silent_for(self, pid: int) -> float | None:
        """Seconds since a process last answered; None for one that was never asked."""
        answered = self._answered.get(pid)
        return None if answered is None else max(0.0, self.clock() - answered)

    def look(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Ask all of them once."""
        told = ask_all(self.run_directory / TABLES_FOLDER_NAME, "in_flight", seconds=seconds, limit=0)
        now = self.clock()
        for pid, answer in told.items():
            if answer is not None:
                self._answered[pid] = now
                self._told.discard(pid)
            elif now - self._answered.setdefault(pid, now) >= TOLD_AFTER_SECONDS and pid not in self._told:
                self._told.add(pid)
                self._complain(pid, now - self._answered[pid])
        for gone in self._answered.keys() - told.keys():
            del self._answered[gone]

    def _complain(self, pid: int, seconds: float) -> None:
        name = self.name_of(pid)
        if name is not None:
            self.tell(
                f"{name} (pid {pid}) has said nothing for {seconds:.0f} s: it is stopped, or something blocks its "
                f"event loop. `gym ps` says what it is doing, `gym env restart {name}` starts it anew."
            )

    def _run(self) -> None:
        while not self._stopped.wait(ASK_EVERY_SECONDS):
            self.look()
