"""The books of a run in one line: of what was asked, how much was measured, what failed where, what is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.config.keys import RESPONSES_API_MODELS
from nemo_gym.rollouts.failures import (
    AGENT_REQUEST_FAILED_FAILURE_CLASS,
    AGENT_RUN_ERROR_FAILURE_CLASS,
    FAILURE_RULES,
    Boundary,
    failure_class_of,
    rule_for,
)
from nemo_gym.rollouts.keys import NG_FAILURE_CAUSE_KEY
from nemo_gym.rollouts.keyset import RolloutKey, RolloutKeys
from nemo_gym.rollouts.topology import Topology
from nemo_gym.schema.failure_kinds import TRANSPORT_TIMEOUT

Failure = tuple[str, str]
"""Where it happened, and its class."""

BoundaryOf = Callable[[Mapping[str, Any]], str]

_TOLD_BY_ITS_ORIGIN = frozenset({AGENT_RUN_ERROR_FAILURE_CLASS, AGENT_REQUEST_FAILED_FAILURE_CLASS})
_BOUNDARY_OF_STAGE: Mapping[str, Boundary] = {
    "seed": "environment",
    "model": "provider",
    "tool": "tool",
    "verify": "verifier",
}
"""Where a stage of a rollout that took too long happened, by the stage's code."""


def boundary_by(topology: Topology) -> BoundaryOf:
    """Where a failure happened: as the table of failures says, unless its record tells where in the chain it began."""

    def boundary_of(record: Mapping[str, Any]) -> str:
        failure_class = failure_class_of(record) or ""
        if failure_class == TRANSPORT_TIMEOUT:
            origin = _stage(record)
        else:
            origin = _origin(record, topology) if failure_class in _TOLD_BY_ITS_ORIGIN else None
        return origin or rule_for(failure_class).boundary

    return boundary_of


def _stage(record: Mapping[str, Any]) -> Boundary | None:
    cause = record.get(NG_FAILURE_CAUSE_KEY)
    return _BOUNDARY_OF_STAGE.get(str(cause.get("stage"))) if isinstance(cause, Mapping) else None


def _origin(record: Mapping[str, Any], topology: Topology) -> Boundary | None:
    cause = record.get(NG_FAILURE_CAUSE_KEY)
    if not isinstance(cause, Mapping):
        return None
    server = topology.get(str(cause.get("server")).rpartition("___")[2])
    if server is not None and server.server_type == RESPONSES_API_MODELS:
        return "provider"
    kind = FAILURE_RULES.get(str(cause.get("kind")))
    return None if kind is None else kind.boundary


@dataclass
class Tries:
    """Rewards of measured rollouts: how many have one, and their sum."""

    rollouts: int = 0
    rewarded: int = 0
    reward: float = 0.0

    def __add__(self, other: Tries) -> Tries:
        return Tries(self.rollouts + other.rollouts, self.rewarded + other.rewarded, self.reward + other.reward)

    @property
    def mean(self) -> float | None:
        return self.reward / self.rewarded if self.rewarded else None


@dataclass
class Retried:
    """Measured rollouts apart: those that needed more than one try, and the others."""

    again: Tries = field(default_factory=Tries)
    at_once: Tries = field(default_factory=Tries)

    def add(self, reward: float | None, *, tries: int) -> None:
        found = self.again if tries > 1 else self.at_once
        found.rollouts += 1
        if reward is not None:
            found.rewarded += 1
            found.reward += reward

    def __add__(self, other: Retried) -> Retried:
        return Retried(self.again + other.again, self.at_once + other.at_once)

    def line(self) -> str | None:
        """What retries may have done to the score; None without any."""
        if not self.again.rollouts:
            return None
        mean, other = self.again.mean, self.at_once.mean
        of_others = "" if other is None else f", of the others {other:.3g}"
        told = "" if mean is None else f" (mean reward {mean:.3g}{of_others})"
        return f"Measured only after retries: {self.again.rollouts}{told}"

    def as_data(self) -> dict[str, Any]:
        return {
            "measured_after_retries": self.again.rollouts,
            "mean_reward_after_retries": self.again.mean,
            "mean_reward_at_once": self.at_once.mean,
        }


@dataclass
class Coverage:
    """What became of the rollouts that were asked for.

    `unknown` are those that were sent, as far as is known, and have no outcome on file.
    """

    asked: int = 0
    measured: int = 0
    failures: dict[Failure, int] = field(default_factory=dict)
    not_started: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        failures = dict(self.failures)
        for failure, count in other.failures.items():
            failures[failure] = failures.get(failure, 0) + count
        return Coverage(
            self.asked + other.asked,
            self.measured + other.measured,
            failures,
            self.not_started + other.not_started,
        )

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def unknown(self) -> int:
        return max(0, self.asked - self.measured - self.failed - self.not_started)

    @property
    def is_complete(self) -> bool:
        return not (self.failed or self.unknown or self.not_started)

    def by_boundary(self) -> dict[str, int]:
        """Failures by where they happened, most frequent first."""
        found: dict[str, int] = {}
        for (boundary, _), count in self.failures.items():
            found[boundary] = found.get(boundary, 0) + count
        return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))

    def line(self) -> str:
        """`1000 asked: 994 measured, 4 failed (provider 3, verifier 1), 2 unknown`, then what was not started."""
        where = ", ".join(f"{boundary} {count}" for boundary, count in self.by_boundary().items())
        failed = f"{self.failed} failed{f' ({where})' if where else ''}"
        not_started = f", {self.not_started} not started" if self.not_started else ""
        return f"{self.asked} asked: {self.measured} measured, {failed}, {self.unknown} unknown{not_started}"

    def as_data(self) -> dict[str, Any]:
        kinds: dict[str, dict[str, int]] = {}
        for (boundary, failure_class), count in sorted(self.failures.items()):
            kinds.setdefault(boundary, {})[failure_class] = count
        return {
            "asked": self.asked,
            "measured": self.measured,
            "failed": self.failed,
            "unknown": self.unknown,
            "not_started": self.not_started,
            "failures": kinds,
        }


class Tally:
    """The books kept while a run goes on; a bit or two for each rollout."""

    def __init__(self, asked: int = 0) -> None:
        self.asked = asked
        self.measured = RolloutKeys()
        self.retried = Retried()
        self._failed: dict[Failure, RolloutKeys] = {}
        self._open = RolloutKeys()

    def start(self, key: RolloutKey) -> None:
        """Note that a rollout is sent: until it has an outcome it is unknown. An earlier failure stays its outcome."""
        if key not in self.measured and not any(key in keys for keys in self._failed.values()):
            self._open.add(key)

    def measure(self, key: RolloutKey) -> bool:
        """Note that a rollout is measured; False when it was already."""
        self._forget(key)
        return self.measured.add(key)

    def fail(self, key: RolloutKey, failure: Failure) -> None:
        """Note the last failure of a rollout; one that was measured stays measured."""
        if key not in self.measured:
            self._forget(key)
            self._failed.setdefault(failure, RolloutKeys()).add(key)

    def coverage(self) -> Coverage:
        failures = {failure: len(keys) for failure, keys in self._failed.items() if len(keys)}
        ended = len(self.measured) + sum(failures.values())
        return Coverage(self.asked, len(self.measured), failures, max(0, self.asked - ended - len(self._open)))

    def _forget(self, key: RolloutKey) -> None:
        self._open.discard(key)
        for keys in self._failed.values():
            keys.discard(key)
