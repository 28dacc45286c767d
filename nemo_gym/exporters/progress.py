"""How a collection is doing, sent while it runs, from a thread of its own: a slow tracker never holds a run up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from nemo_gym.config.notices import warn
from nemo_gym.exporters.opened import export_metrics
from nemo_gym.results.jsonl import JsonLines
from nemo_gym.results.records import REWARD, ROLLOUT_INDEX, TASK_INDEX, Record, agent_name, as_number, is_masked

Outcome: TypeAlias = Literal["measured", "failed", "omitted"]
Key: TypeAlias = tuple[Any, Any]

_CLOSING_SECONDS = 30.0


@dataclass(frozen=True)
class Completed:
    """One rollout that has ended. `key` are its task and its repeat."""

    agent: str | None
    outcome: Outcome
    key: Key
    reward: float | None = None
    masked: bool = False


def key_in(record: Record) -> Key:
    """The task and the repeat of a record, as they stand there."""
    return record.get(TASK_INDEX), record.get(ROLLOUT_INDEX)


def measured(record: Record) -> Completed:
    """What a record on file says of its rollout."""
    reward = as_number(REWARD, record.get(REWARD))
    return Completed(agent_name(record), "measured", key_in(record), reward, is_masked(record))


@dataclass
class _Agent:
    """The rollouts of one agent so far."""

    left: int = 0
    rewards: list[float] = field(default_factory=lambda: [0.0, 0.0])
    scored: list[int] = field(default_factory=lambda: [0, 0])
    failed: int = 0
    omitted: int = 0

    def take(self, completed: Completed) -> None:
        self.left = max(0, self.left - 1)
        if completed.outcome == "failed":
            self.failed += 1
        elif completed.outcome == "omitted":
            self.omitted += 1
        else:
            self.scored[completed.masked] += 1
            self.rewards[completed.masked] += completed.reward or 0.0

    def metrics(self, prefix: str) -> dict[str, float]:
        scored, rewards = sum(self.scored), sum(self.rewards)
        values: dict[str, float] = {}
        if scored:
            values["reward"] = _percent(rewards / scored)
            values["reward_lower_bound"] = _percent(rewards / (self.left + scored))
        if self.scored[True] or self.failed or self.omitted:
            values["masked_pct"] = _percent(self.scored[True] / scored) if scored else 0.0
            if self.scored[False]:
                values["reward_unmasked"] = _percent(self.rewards[False] / self.scored[False])
            values |= {"failed": self.failed, "omitted": self.omitted}
        return {f"{prefix}{name}": value for name, value in values.items()}


class ProgressExport:
    """Sends the state of a collection each time another percent of it is done.

    `materialized` lists all rollouts of the run; records in `output` that nobody reports are those of an earlier run
    that this one resumes.
    """

    def __init__(self, materialized: Path, output: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._materialized, self._output, self._clock = materialized, output, clock
        self._reported: queue.SimpleQueue[Completed | None] = queue.SimpleQueue()
        self._waiting: list[Completed] = []
        self._closed = False
        self._agents: dict[str, _Agent] = {}
        self._total = self._earlier = 0
        self._thread = threading.Thread(target=self._send_all, name="exporters", daemon=True)

    def __enter__(self) -> Self:
        self._started = self._clock()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reported.put(None)
        self._thread.join(_CLOSING_SECONDS)

    def completed(self, rollout: Completed) -> None:
        """Note one rollout, before its record is written; returns at once."""
        self._reported.put(rollout)

    def _send_all(self) -> None:
        try:
            self._send_until_closed()
        except Exception as error:
            warn(f"The progress of the run is not sent any further ({type(error).__name__}: {error}).")

    def _send_until_closed(self) -> None:
        done, sent = 0, -1
        while not self._closed:
            self._note(self._reported.get())
            self._drain()
            if not self._waiting:
                continue
            if not done:
                self._read_plan()
            for rollout in self._waiting:
                self._agent(rollout.agent).take(rollout)
            done += len(self._waiting)
            self._waiting.clear()
            percent = int(100 * (self._earlier + done) / self._total) if self._total else 0
            if percent > sent:
                sent = percent
                export_metrics(self._metrics(done), step=percent)

    def _note(self, rollout: Completed | None) -> None:
        if rollout is None:
            self._closed = True
        else:
            self._waiting.append(rollout)

    def _drain(self) -> None:
        while not self._reported.empty():
            self._note(self._reported.get())

    def _read_plan(self) -> None:
        """Count the rollouts of each agent, and take in what an earlier run left.

        A rollout is reported before it is written: a record is an earlier run's when nothing waiting has its key even
        after the reports have been read once more.
        """
        for line in JsonLines(self._materialized, "--output"):
            self._total += 1
            self._agent(agent_name(line.record)).left += 1
        reported = {rollout.key for rollout in self._waiting}
        for line in JsonLines(self._output, "--output") if self._output.exists() else ():
            record, key = line.record, key_in(line.record)
            if key not in reported and not self._reported.empty():
                self._drain()
                reported = {rollout.key for rollout in self._waiting}
            if key not in reported:
                self._earlier += 1
                self._agent(agent_name(record)).take(measured(record))

    def _agent(self, name: str | None) -> _Agent:
        return self._agents.setdefault(name or "", _Agent())

    def _metrics(self, done: int) -> dict[str, float]:
        minutes = max(self._clock() - self._started, 1e-9) / 60
        metrics: dict[str, float] = {"progress/total/rollouts_per_min": round(done / minutes, 2)}
        for name, agent in self._agents.items():
            if name:
                metrics |= agent.metrics(f"progress/{name}/")
        return metrics


def _percent(share: float) -> float:
    return round(100 * share, 2)
