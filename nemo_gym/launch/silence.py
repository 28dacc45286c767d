"""Noticing servers that live and say nothing: asked now and then, with a word when one is silent for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.handover import TABLES_FOLDER_NAME
from nemo_gym.launch.process_stats import is_stopped
from nemo_gym.launch.rounds import Rounds
from nemo_gym.launch.tables import ask_all, ask_one
from nemo_gym.serve.pulse import PULSE_SUFFIX

ASK_EVERY_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
TOLD_AFTER_SECONDS = 30.0
STOPPED_SECONDS = 30.0
"""After this long a process that somebody stopped is taken for lost: nothing in it can ever move by itself."""
HUNG_SECONDS = 300.0
"""The same for one that lives and says nothing and has no pulse, by which `held` would know more."""
LAST_WORD_SECONDS = 30.0
"""So long one that is merely overworked may take to answer, when it is asked for the last time."""
AWAY_SECONDS = 60.0
"""A longer time between two looks is one in which this process was stopped: it says nothing about others."""


def _nothing_to_do(pid: int, why: str) -> None:
    return


@dataclass
class SilenceWatch:
    """Keeps, for every process that has a table of requests, when it last answered.

    `name_of` gives the words for a process by its pid; None for one that isn't known. `tell` gets a sentence, once for
    each silence of half a minute. `give_up` gets the pid of one that won't come back, once, and in words why. `servers`
    are the processes that may have no table.
    """

    run_directory: Path
    name_of: Callable[[int], str | None]
    tell: Callable[[str], None]
    give_up: Callable[[int, str], None] = _nothing_to_do
    servers: Callable[[], Iterable[int]] = tuple
    is_stopped: Callable[[int], bool] = is_stopped
    clock: Callable[[], float] = time.monotonic
    _answered: dict[int, float] = field(default_factory=dict)
    _told: set[int] = field(default_factory=set)
    _stopped_since: dict[int, float] = field(default_factory=dict)
    _given_up: set[int] = field(default_factory=set)
    _looked: float | None = None

    def __post_init__(self) -> None:
        self._folder = self.run_directory / TABLES_FOLDER_NAME
        self._rounds = Rounds(self.look, seconds=ASK_EVERY_SECONDS, name="gym-silence")

    def start(self) -> None:
        self._rounds.start()

    def stop(self) -> None:
        self._rounds.stop()

    def silent_for(self, pid: int) -> float | None:
        """Seconds since a process last answered; None for one that was never asked."""
        answered = self._answered.get(pid)
        return None if answered is None else max(0.0, self.clock() - answered)

    def look(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Ask all of them once."""
        told = ask_all(self._folder, "in_flight", seconds=seconds, limit=0)
        now = self.clock()
        self._forgive_own_absence(now)
        for pid, answer in told.items():
            if answer is not None:
                self._answered[pid] = now
                self._told.discard(pid)
            elif now - self._answered.setdefault(pid, now) >= TOLD_AFTER_SECONDS and pid not in self._told:
                self._told.add(pid)
                self._complain(pid, now - self._answered[pid])
            if now - self._answered[pid] >= HUNG_SECONDS and not self._has_pulse(pid):
                self._hear_last_word(pid)
        for gone in self._answered.keys() - told.keys():
            del self._answered[gone]
        self._look_for_stopped({*told, *self.servers()}, now)

    def _has_pulse(self, pid: int) -> bool:
        return (self._folder / f"{pid}{PULSE_SUFFIX}").exists()

    def _look_for_stopped(self, pids: set[int], now: float) -> None:
        self._stopped_since = {pid: self._stopped_since.get(pid, now) for pid in pids if self.is_stopped(pid)}
        for pid, since in self._stopped_since.items():
            if now - since >= STOPPED_SECONDS and pid not in self._given_up:
                self._lose(pid, f"was stopped, as by SIGSTOP, for {STOPPED_SECONDS:g} s")

    def _forgive_own_absence(self, now: float) -> None:
        away = 0.0 if self._looked is None else now - self._looked
        if away > AWAY_SECONDS:
            for moments in (self._answered, self._stopped_since):
                moments.update({pid: moment + away for pid, moment in moments.items()})
        self._looked = now

    def _hear_last_word(self, pid: int) -> None:
        """Ask once more, with patience and in a thread of its own, before a process is given up."""
        if pid in self._given_up:
            return
        self._given_up.add(pid)

        def ask() -> None:
            if ask_one(self._folder, pid, "in_flight", seconds=LAST_WORD_SECONDS, limit=0):
                self._given_up.discard(pid)
            elif not self._rounds.are_over:
                self._lose(pid, f"said nothing for {HUNG_SECONDS:g} s")

        threading.Thread(target=ask, name=f"gym-last-word-{pid}", daemon=True).start()

    def _lose(self, pid: int, why: str) -> None:
        """Whoever can do nothing about it is told once, too."""
        self._given_up.add(pid)
        self.give_up(pid, why)

    def _complain(self, pid: int, seconds: float) -> None:
        name = self.name_of(pid)
        if name is not None:
            self.tell(
                f"{name} (pid {pid}) has said nothing for {seconds:.0f} s: it is stopped, or something blocks its "
                f"event loop. `gym ps` says what it is doing, `gym env restart {name}` starts it anew."
            )
