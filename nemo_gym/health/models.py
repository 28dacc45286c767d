"""What checks are, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from nemo_gym.health.view import RolloutView

TaskIndex: TypeAlias = int | str


class Verdict(StrEnum):
    """What is thought of a rollout: unobserved when nothing is known against it and not everything was seen."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNOBSERVED = "unobserved"


class CheckScope(StrEnum):
    """What a check looks at once."""

    ROLLOUT = "rollout"
    TASK = "task"


class CheckSubject(StrEnum):
    """What a finding is about."""

    CHECK = "check"
    RECORD = "record"
    ROLLOUT = "rollout"
    TURN = "turn"
    CALL = "call"
    CAPTURE = "capture"
    TASK = "task"


class CheckInput(StrEnum):
    """What must have been recorded for a check to run."""

    RECORD = "record"
    TURNS = "turns"
    OBSERVED_CALLS = "observed_calls"
    OWNED_CALLS = "owned_calls"
    BOUND_CALLS = "bound_calls"
    VERDICTS = "verdicts"
    DIGESTS = "digests"


@dataclass(frozen=True)
class Finding:
    """Something wrong. `locator` says where in the rollout."""

    check: str
    detail: dict[str, Any] = field(default_factory=dict)
    locator: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in a verdict."""
        located = {} if self.locator is None else {"locator": self.locator}
        return {"check": self.check, **located, "detail": self.detail}


RolloutCheck: TypeAlias = "Callable[[RolloutView], Iterable[Finding]]"


@dataclass(frozen=True)
class CheckSpec:
    """A check by its id. Those with `run` look at one rollout; the engine does the others."""

    id: str
    scope: CheckScope
    subject: CheckSubject
    needs: CheckInput
    description: str
    run: RolloutCheck | None = None


@dataclass
class CallStatistics:
    """Numbers of a rollout's model calls, and of the tokens in its answer and its calls."""

    failed_by_status: dict[str, int] = field(default_factory=dict)
    ended_on_error: bool = False
    replayed: int = 0
    prompt: int = 0
    completion: int = 0
    capture_prompt: int = 0
    capture_completion: int = 0
    has_calls: bool = False


@dataclass
class RolloutDigest:
    """One rollout as the checks see it, wherever its record stands: line `line` (from 1) of input `source`."""

    source: int
    line: int
    task_index: TaskIndex
    rollout_index: TaskIndex | None
    stage_index: TaskIndex | None
    rollout_id: str
    findings: list[Finding] = field(default_factory=list)
    unobserved: list[str] = field(default_factory=list)
    statistics: CallStatistics = field(default_factory=CallStatistics)
    policy_calls: int | None = None
    """Calls of the agent; None when they were not observed."""
    successful_policy_calls: int = 0

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return Verdict.UNHEALTHY
        return Verdict.UNOBSERVED if self.unobserved else Verdict.HEALTHY

    @property
    def identity(self) -> tuple[TaskIndex | None, TaskIndex, TaskIndex | None]:
        """Stage, task and repeat."""
        return self.stage_index, self.task_index, self.rollout_index

    def to_json(self) -> dict[str, Any]:
        """As it stands in `rollout_verdicts.jsonl`."""
        stage = {} if self.stage_index is None else {"stage_index": self.stage_index}
        return {
            "_ng_task_index": self.task_index,
            "_ng_rollout_index": self.rollout_index,
            "rollout_id": self.rollout_id,
            "verdict": self.verdict.value,
            "findings": [finding.to_json() for finding in self.findings],
            "unobserved": self.unobserved,
            **stage,
        }


@dataclass(frozen=True)
class HealthCheckResult:
    """The summary as written to `summary_path`, and every rollout in the order of `verdicts_path`."""

    summary: dict[str, Any]
    rollouts: list[RolloutDigest]
    summary_path: Path
    verdicts_path: Path

    @property
    def verdicts(self) -> dict[str, int]:
        """How many rollouts are healthy, unhealthy and unobserved."""
        counts: dict[str, int] = self.summary["run"]["verdicts"]
        return counts
