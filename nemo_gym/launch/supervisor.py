"""Knows at once when a server ends, and which was the first."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from nemo_gym.launch.errors import ServerFailedError
from nemo_gym.launch.logs import length, tail, with_prefix
from nemo_gym.launch.process import ServerProcess


class Supervisor:
    """Keeps the processes of a run by name, and the order in which they died.

    `titles` say how a sentence begins about a process that is more than the server it is called after. `wakeup` is a
    pipe end that becomes readable at every death, for those who wait on descriptors.
    """

    def __init__(self, logs: Mapping[str, Path], redact: Callable[[str], str] = str) -> None:
        self.processes: dict[str, ServerProcess] = {}
        self.logs = logs
        self.titles: dict[str, str] = {}
        self._earlier = {name: length(path) for name, path in logs.items()}
        self._redact = redact
        self._deaths: list[ServerProcess] = []
        self._reasons: dict[ServerProcess, str] = {}
        self._take_over: Callable[[ServerProcess], bool] | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self.wakeup, self._wakeup_end = os.pipe()
        os.set_blocking(self.wakeup, False)

    def add(self, key: str, process: ServerProcess) -> None:
        self.processes[key] = process

    def note_death(self, process: ServerProcess) -> None:
        """For the spawner, which knows first."""
        if self._take_over is None or self._stopping or not self._take_over(process):
            self.give_up(process)

    def hand_over(self, take_over: Callable[[ServerProcess], bool]) -> None:
        """From now on a death is `take_over`'s to handle; where that is False, and before, it ends the run."""
        self._take_over = take_over

    def give_up(self, process: ServerProcess, why: str = "") -> None:
        """The run has to end because of a death; `why` goes with what is said about it."""
        with self._changed:
            self._reasons[process] = why
            self._deaths.append(process)
            self._changed.notify_all()
        self.wake()

    def replaces(self, key: str) -> None:
        """Another process is about to take a dead one's place: what the log holds by now isn't its own."""
        path = self.logs.get(key)
        if path is not None:
            self._earlier[key] = length(path)

    def expect_deaths(self) -> None:
        """From now on servers end because we want them to."""
        self._stopping = True

    def wait_for_death(self, seconds: float) -> bool:
        """Whether something ended, at the latest after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._deaths), seconds)

    def check(self) -> None:
        """Raise ServerFailedError, with the culprit's own last lines, when a server has ended unasked."""
        with self._changed:
            culprit = self._deaths[0] if self._deaths and not self._stopping else None
        if culprit is not None:
            why = self._reasons.get(culprit, "")
            raise ServerFailedError("\n".join(filter(None, [self.describe(culprit), why])))

    def describe(self, process: ServerProcess) -> str:
        log = self.logs.get(process.name)
        lines = [] if log is None else tail(log, since=self._earlier[process.name])
        title = self.titles.get(process.name, f"Server {process.name} (")
        separator = "" if title.endswith("(") else ", "
        if not process.pid:  # no node of a cluster took it
            return f"{title.removesuffix(' (')}{'' if title.endswith('(') else ')'} {process.describe_end()}."
        what = f"{title}{separator}pid {process.pid}) {process.describe_end()} before it was asked to."
        if not lines:
            return f"{what} It wrote nothing."
        quoted = "\n".join(self._redact(with_prefix(process.name, line)) for line in lines)
        return f"{what} Its last lines:\n{quoted}"

    def close(self) -> None:
        with self._changed:
            fds, self.wakeup, self._wakeup_end = (self.wakeup, self._wakeup_end), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def wake(self) -> None:
        """Make `wakeup` readable."""
        with self._changed:
            if self._wakeup_end >= 0:
                os.write(self._wakeup_end, b"1")
