"""While servers start: one that somebody kills is started once more. One that ends by itself would only do it again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.readiness import Awaited

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_KILLED = frozenset({*(-number for number in _SIGNALS), *(128 + number for number in _SIGNALS)})
"""Return codes of those who were killed; some end in order on a signal, with a code that names it."""


@dataclass
class SecondStart:
    """Takes deaths from any thread; the one that waits for servers starts them anew, through `start`."""

    start: Callable[[str], Awaited]
    describe: Callable[[ServerProcess], str]
    wake: Callable[[], None]
    report: Callable[[str], None]
    _had_one: set[str] = field(default_factory=set)
    _killed: list[ServerProcess] = field(default_factory=list)

    def take(self, process: ServerProcess) -> bool:
        """Whether a death is handled here; False when the start has to end for it."""
        if process.was_lost or process.returncode not in _KILLED or process.name in self._had_one:
            return False
        self._had_one.add(process.name)
        self._killed.append(process)
        self.wake()
        return True

    def begin(self) -> Iterator[Awaited]:
        """Start those that were killed. Raises LaunchError."""
        while self._killed:
            process = self._killed.pop(0)
            self.report(f"{self.describe(process)}\nIt is started once more.")
            yield self.start(process.name)

    def left(self) -> Iterator[ServerProcess]:
        """Those that nobody started anew before all others were ready."""
        while self._killed:
            yield self._killed.pop(0)
