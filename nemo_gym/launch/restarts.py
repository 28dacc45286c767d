"""Starting servers again that ended unasked: a few times at most, each time a little later."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from nemo_gym.errors import GymError
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.supervisor import Supervisor

WINDOW_SECONDS = 600.0
DEFAULT_RESTARTS = 3
HELD_FACTOR = 5
"""So many times as often as for deaths may a server be ended for a rollout that got it stuck, and is failed for it."""
DELAYS = (0.2, 2.0, 10.0)
STOP_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_LAST_WORD_SECONDS = 1.0


@dataclass(frozen=True)
class _Reason:
    """Why a process is ended from here: in words, what its user can do about it, and whether a rollout pays for it."""

    why: str
    advice: str = ""
    is_charged: bool = False


State = Literal["starting", "running", "restarting", "ended"]


@dataclass
class RestartBook:
    """When each server was started again. `limit` restarts are allowed within `window` seconds; 0 allows none."""

    limit: int
    window: float = WINDOW_SECONDS
    clock: Callable[[], float] = time.monotonic
    _times: dict[str, list[float]] = field(default_factory=dict)

    def take(self, name: str) -> int | None:
        """Which restart within the window this is, from 1; None when it would be one too many."""
        now = self.clock()
        recent = [moment for moment in self._times.get(name, ()) if now - moment < self.window]
        self._times[name] = recent
        if len(recent) >= self.limit:
            return None
        recent.append(now)
        return len(recent)

    def describe_limit(self) -> str:
        return f"{self.limit} within {self.window / 60:g} minutes"


@dataclass(frozen=True)
class Restarted:
    """A process that takes another's place; `ready` is the pipe on which it says that it serves."""

    process: ServerProcess
    ready: int


class Servers(Protocol):
    """What starting servers again takes of a run."""

    def start_again(self, name: str, generation: int) -> Restarted:
        """Start it on the socket it had. Raises LaunchError."""

    def answers(self, name: str) -> bool:
        """Whether something answers at its address: for servers that don't say when they serve."""

    def is_back(self, name: str) -> None:
        """It serves again."""

    def describe(self, process: ServerProcess) -> str:
        """How it ended, with its last lines."""

    def give_up(self, process: ServerProcess, why: str) -> None:
        """The run can't go on without it."""


class Reviver:
    """Takes over the deaths of a run's servers once all of them serve. Each is handled in a thread of its own."""

    def __init__(
        self,
        book: RestartBook,
        servers: Servers,
        report: Callable[[str], None],
        *,
        seconds_to_start: float | None = None,
        delays: tuple[float, ...] | None = None,
    ) -> None:
        self.generations: dict[str, int] = {}
        self.states: dict[str, State] = {}
        self.last_ends: dict[str, str] = {}
        self.is_watching = False
        self._book = book
        self._servers = servers
        self._report = report
        self._seconds_to_start = seconds_to_start
        self._delays = delays or DELAYS
        self._asked: set[ServerProcess] = set()
        self._held_book = RestartBook(book.limit * HELD_FACTOR, book.window, book.clock)
        self._reasons: dict[ServerProcess, _Reason] = {}
        self._starting = threading.Lock()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def is_on(self) -> bool:
        return self._book.limit > 0

    def watch(self, supervisor: Supervisor) -> None:
        """From now on deaths are handled here, if any restart is allowed."""
        if self.is_on:
            supervisor.hand_over(self.take)
            self.is_watching = True

    def take(self, process: ServerProcess) -> bool:
        """Whether a death is handled here; False when the run has to end for it."""
        if process.was_lost or self._stopped.is_set():
            return False
        name = process.name
        asked = process in self._asked
        self._asked.discard(process)
        reason = self._reasons.pop(process, None)
        if not asked:
            self.last_ends[name] = process.describe_end() if reason is None else reason.why
        book = self._held_book if reason is not None and reason.is_charged else self._book
        number = 0 if asked else book.take(name)
        if number is None:
            self.states[name] = "ended"
            ended = "" if reason is None else f"It {reason.why}. {reason.advice}\n"
            limit = f"It is not started again: {book.describe_limit()} is the limit (+server_restarts=)."
            self._servers.give_up(process, f"{ended}{limit}")
            return True
        self.states[name] = "restarting"
        self._in_thread(f"gym-restart-{name}", lambda: self._revive(process, number, book, reason))
        return True

    def restart(self, process: ServerProcess) -> None:
        """End a server so that it is started again; returns at once, and doesn't count against the limit."""
        self._asked.add(process)
        self.states[process.name] = "restarting"
        self._in_thread(f"gym-stop-{process.name}", lambda: self._end(process))

    def restart_hung(self, process: ServerProcess, why: str) -> None:
        """The same for one that does nothing any more, in words why; that counts, as a death does."""
        self._reasons[process] = _Reason(why)
        self.states[process.name] = "restarting"
        self._in_thread(f"gym-stop-{process.name}", lambda: self._end(process))

    def restart_held(self, process: ServerProcess, why: str, advice: str, *, is_charged: bool) -> None:
        """The same for one that is at one piece of work for too long and so hears no signal."""
        self._reasons[process] = _Reason(why, advice, is_charged)
        self.states[process.name] = "restarting"
        process.kill()

    def stop(self) -> None:
        """Start nothing from now on; returns when nothing is being started."""
        with self._starting:
            self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _end(self, process: ServerProcess) -> None:
        process.terminate()
        process.send_signal(signal.SIGCONT)  # a stopped process hears nothing else
        deadline = time.monotonic() + STOP_GRACE_SECONDS
        while process.returncode is None and time.monotonic() < deadline and not self._stopped.is_set():
            self._stopped.wait(_LOOK_SECONDS / 4)
        if process.returncode is None and not self._stopped.is_set():
            process.kill()

    def _revive(self, process: ServerProcess, number: int, book: RestartBook, reason: _Reason | None) -> None:
        name, ended_at = process.name, time.monotonic()
        if number:
            then = f"It is started again (restart {number} of at most {book.describe_limit()})."
            ended = self._servers.describe(process)
            if reason is not None:
                ended = f"{name} (pid {process.pid}) {reason.why} and was ended. {reason.advice}".rstrip()
            self._report(f"{ended}\n{then}")
            wait = 1 if reason is not None and reason.is_charged else min(number, len(self._delays))
            if self._stopped.wait(self._delays[wait - 1]):
                return
        try:
            restarted = self._start(name)
        except (GymError, OSError) as error:
            self.states[name] = "ended"
            self._servers.give_up(process, f"It could not be started again: {error}")
            return
        if restarted is not None and self._wait_until_ready(name, restarted):
            self.states[name] = "running"
            self._servers.is_back(name)
            seconds = time.monotonic() - ended_at
            lost = "what it held in memory is lost"
            self._report(f"{name} serves again (pid {restarted.process.pid}), {seconds:.1f} s after it ended; {lost}.")

    def _start(self, name: str) -> Restarted | None:
        with self._starting:
            if self._stopped.is_set():
                return None
            generation = self.generations[name] = self.generations.get(name, 0) + 1
            return self._servers.start_again(name, generation)

    def _wait_until_ready(self, name: str, restarted: Restarted) -> bool:
        """False when it ended first, whose death is another case, or when the run ends."""
        process, limit = restarted.process, self._seconds_to_start
        deadline = None if limit is None else time.monotonic() + limit
        says_so: bool | None = None
        try:
            while not self._stopped.is_set():
                if says_so is None:
                    says_so = _said(restarted.ready)
                if says_so or (says_so is False and _lives_on(process) and self._servers.answers(name)):
                    return True
                if process.returncode is not None:
                    return False
                if deadline is not None and time.monotonic() > deadline:
                    self._report(f"{name} (pid {process.pid}) did not serve within {limit:g} s, so it is killed.")
                    process.kill()
                    deadline = None
            return False
        finally:
            os.close(restarted.ready)

    def _in_thread(self, name: str, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


def _said(pipe: int) -> bool | None:
    """True for the byte, False for a pipe that was closed without one, None while there is neither."""
    readable, _, _ = select.select([pipe], [], [], _LOOK_SECONDS)
    return bool(os.read(pipe, 1)) if readable else None


def _lives_on(process: ServerProcess) -> bool:
    """Whether a process that closed its pipe did so without ending."""
    deadline = time.monotonic() + _LAST_WORD_SECONDS
    while process.returncode is None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS / 4)
    return process.returncode is None
