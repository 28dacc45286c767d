"""Noticing processes whose event loop is held up by one piece of work, and whose that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.handover import TABLES_FOLDER_NAME
from nemo_gym.launch.process_stats import STOPPED, WAITS_FOR_DISK, letter_of
from nemo_gym.launch.rounds import Rounds
from nemo_gym.serve.pulse import HELD_SUFFIX, PULSE_SUFFIX, Held, read_held, read_pulse
from nemo_gym.serve.stages import METRICS, Stage, stage_of

DEFAULT_SECONDS = 300.0
LEAST_SECONDS = 10.0
"""No limit of a stage makes it shorter: short pieces of work only fail their rollouts."""
LOOK_EVERY_SECONDS = 2.0


@dataclass(frozen=True)
class HeldLimits:
    """`seconds` is how long one piece of work may hold an event loop, 0 for ever. A stage's limit may be shorter."""

    seconds: float = DEFAULT_SECONDS
    stages: Mapping[Stage, float] = field(default_factory=dict)
    server_types: Mapping[str, str] = field(default_factory=dict)

    def of(self, held: Held | None) -> float:
        """The limit for what holds a loop; 0 for none. Metrics have only that of their stage, since they compute."""
        stage = None if held is None else stage_of(self.server_types.get(held.server), held.path)
        own = 0.0 if stage is None else self.stages.get(stage, stage.seconds)
        if stage is METRICS:
            return own
        if not own or not self.seconds:
            return self.seconds
        return min(self.seconds, max(own, LEAST_SECONDS))


@dataclass
class _Standstill:
    moment: float
    is_judged: bool = False


@dataclass
class HeldWatch:
    """Looks at the pulses of a run's processes. `lose` gets the pid, the seconds, and what it is held by, once.

    The same standstill is seen twice before it counts: whoever looks may have been away itself.
    """

    run_directory: Path
    limits: HeldLimits
    lose: Callable[[int, float, Held | None], None]
    letter_of: Callable[[int], str] = letter_of
    clock: Callable[[], float] = time.monotonic
    _seen: dict[int, _Standstill] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folder = self.run_directory / TABLES_FOLDER_NAME
        self._rounds = Rounds(self.look, seconds=LOOK_EVERY_SECONDS, name="gym-held")

    def start(self) -> None:
        self._rounds.start()

    def stop(self) -> None:
        self._rounds.stop()

    def look(self) -> None:
        """Look at all of them once."""
        found = {int(path.stem): path for path in self._pulses()}
        self._seen = {pid: seen for pid, seen in self._seen.items() if pid in found}
        for pid, path in found.items():
            self._look_at(pid, path)

    def _look_at(self, pid: int, path: Path) -> None:
        moment, letter = read_pulse(path), self.letter_of(pid)
        if not letter:
            path.unlink(missing_ok=True)
            path.with_suffix(HELD_SUFFIX).unlink(missing_ok=True)
        if moment is None or letter in ("", STOPPED, WAITS_FOR_DISK):
            self._seen.pop(pid, None)
            return
        seen = self._seen.get(pid)
        if seen is None or seen.moment != moment:
            self._seen[pid] = _Standstill(moment)
            return
        if not seen.is_judged:
            self._judge(pid, seen)

    def _judge(self, pid: int, seen: _Standstill) -> None:
        seconds = self.clock() - seen.moment
        held = read_held(self._folder, pid)
        limit = self.limits.of(held)
        if limit and seconds >= limit and not self._rounds.are_over:
            seen.is_judged = True
            self.lose(pid, seconds, held)

    def _pulses(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if path.suffix == PULSE_SUFFIX and path.stem.isdigit()]
        except OSError:
            return []
