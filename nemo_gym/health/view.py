"""A rollout's record as checks look at it: what was recorded of it, and what is known to be missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nemo_gym.health.models import CheckInput
from nemo_gym.schema.observations import ModelCallRef
from nemo_gym.schema.trajectories import TrajectoryModelCall, TrajectoryRecord

CALLS_UNOBSERVED = frozenset(
    {
        "model_calls_unavailable",
        "model_call_capture_incomplete",
        "model_call_capture_records_unreadable",
        "model_call_capture_unreadable",
    }
)
TURNS_UNOBSERVED = "turns_unavailable"
PROJECTION_FAILED = "trajectory_projection_failed"
SCOPE_INCOMPLETE = "turn_model_call_scope_incomplete"

_FAILED_STATUSES = frozenset({"failed", "error", "cancelled"})


def is_failed(call: TrajectoryModelCall) -> bool:
    """Whether a model call was answered with an error."""
    metadata = call.response_metadata
    status = metadata.status_code
    return (
        (status is not None and status >= 400)
        or bool(metadata.error_category)
        or (metadata.response_status in _FAILED_STATUSES)
    )


def is_successful(call: TrajectoryModelCall) -> bool:
    """Whether a model call was answered; one may be neither failed nor successful."""
    status = call.response_metadata.status_code
    return not is_failed(call) and (status is None or 200 <= status < 400)


@dataclass(frozen=True)
class RolloutView:
    """A record and its trajectory, None where none was recorded."""

    record: Mapping[str, Any]
    trajectory: TrajectoryRecord | None

    def has(self, needed: CheckInput) -> bool:
        """Whether what a check needs was observed."""
        if needed is CheckInput.RECORD:
            return True
        if self.trajectory is None or PROJECTION_FAILED in self.gap_codes:
            return False
        if needed is CheckInput.TURNS:
            return TURNS_UNOBSERVED not in self.gap_codes
        if self.gap_codes & CALLS_UNOBSERVED:
            return False
        return needed is not CheckInput.BOUND_CALLS or self._is_bound_completely()

    @cached_property
    def gap_codes(self) -> frozenset[str]:
        return frozenset(gap.code for gap in self.trajectory.gaps) if self.trajectory else frozenset()

    @property
    def calls(self) -> list[TrajectoryModelCall]:
        return self.trajectory.model_calls if self.trajectory else []

    @cached_property
    def references(self) -> list[ModelCallRef]:
        """What turns and invocations say of model calls, each once."""
        if self.trajectory is None:
            return []
        turns, invocations = self.trajectory.turns, self.trajectory.invocations
        lists = [*(turn.model_calls for turn in turns), *(invocation.model_calls for invocation in invocations)]
        return _distinct(reference for references in lists for reference in references)

    @cached_property
    def owned_calls(self) -> list[TrajectoryModelCall]:
        """Calls that a turn or an invocation refers to."""
        return self._referred_to(self.references)

    @cached_property
    def bound_calls(self) -> list[TrajectoryModelCall]:
        """Calls that a turn refers to."""
        turns = self.trajectory.turns if self.trajectory else []
        return self._referred_to(reference for turn in turns for reference in turn.model_calls)

    def matches(self, reference: ModelCallRef) -> list[TrajectoryModelCall]:
        """The calls a reference fits."""
        if reference.model_call_id is not None:
            return [call for call in self.calls if call.model_call_id == reference.model_call_id]
        return [
            call
            for call in self.calls
            if call.response_metadata.response_id == reference.response_id
            and call.response_metadata.model_ref == reference.model_ref
        ]

    @cached_property
    def chains(self) -> dict[str | None, list[TrajectoryModelCall]]:
        """The calls of each model server, in the order of time as far as that is known."""
        chains: dict[str | None, list[TrajectoryModelCall]] = {}
        for call in self.calls:
            reference = call.response_metadata.model_ref
            chains.setdefault(reference.name if reference else None, []).append(call)
        return {
            name: sorted(calls, key=lambda call: call.started_at or 0.0) if _is_timed(calls) else calls
            for name, calls in chains.items()
        }

    def last_failed(self, calls: list[TrajectoryModelCall]) -> TrajectoryModelCall | None:
        """The last call of a chain if it failed. A chain that isn't timed ended badly only if all of it did."""
        ended_badly = is_failed(calls[-1]) if _is_timed(calls) else all(map(is_failed, calls))
        return calls[-1] if ended_badly else None

    @cached_property
    def replayed_calls(self) -> int:
        """Calls whose answer was captured before in this rollout."""
        answers = Counter(
            (metadata.model_ref.name if metadata.model_ref else None, metadata.response_id)
            for metadata in (call.response_metadata for call in self.calls)
            if metadata.response_id is not None
        )
        return sum(count - 1 for count in answers.values())

    @property
    def usage(self) -> Mapping[str, Any] | None:
        """The tokens the agent's answer says it took."""
        response = self.record.get("response")
        usage = response.get("usage") if isinstance(response, Mapping) else None
        return usage if isinstance(usage, Mapping) else None

    def _referred_to(self, references: Iterable[ModelCallRef]) -> list[TrajectoryModelCall]:
        found: dict[int, TrajectoryModelCall] = {}
        for reference in references:
            found.update((id(call), call) for call in self.matches(reference))
        return list(found.values())

    def _is_bound_completely(self) -> bool:
        """Whether every turn says which calls it was made of, and those are known with their tokens."""
        if self.trajectory is None or not self.trajectory.turns or self.usage is None:
            return False
        if self.gap_codes & {SCOPE_INCOMPLETE, TURNS_UNOBSERVED}:
            return False
        references = [turn.model_calls for turn in self.trajectory.turns]
        if not all(references) or any(len(self.matches(one)) != 1 for turn in references for one in turn):
            return False
        tokens = [call.token_stats for call in self.bound_calls]
        return all(None not in (count.prompt_tokens, count.completion_tokens) for count in tokens)


def _is_timed(calls: list[TrajectoryModelCall]) -> bool:
    return all(call.started_at is not None for call in calls)


def _distinct(references: Iterable[ModelCallRef]) -> list[ModelCallRef]:
    return list({reference.model_dump_json(): reference for reference in references}.values())
