"""The trajectory of a rollout, from what its producer, its agent and its model servers recorded of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from nemo_gym.capture.records import PAYLOAD_FIELDS, ModelCallRecord
from nemo_gym.rollouts.captured_turns import captured_turns
from nemo_gym.rollouts.keys import NG_AGENT_OBSERVATIONS_KEY, NG_MODEL_CALL_CAPTURE_KEY, NG_TRAJECTORY_KEY
from nemo_gym.rollouts.records import trajectory_identity
from nemo_gym.schema.observations import (
    AgentInvocation,
    AgentObservationBundle,
    ObservationGap,
    ObservationModel,
    ToolCallObservation,
)
from nemo_gym.schema.trajectories import (
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
    TrajectoryTurn,
)

PRODUCER_INVALID = "producer_trajectory_invalid"
IDENTITY_MISMATCH = "producer_trajectory_identity_mismatch"
OBSERVATIONS_INVALID = "agent_observations_invalid"
CALLS_UNAVAILABLE = "model_calls_unavailable"
TURNS_UNAVAILABLE = "turns_unavailable"
CONVERSATION_UNAVAILABLE = "conversation_unavailable"
PROJECTION_FAILED = "trajectory_projection_failed"

_Model = TypeVar("_Model", bound=ObservationModel)

_SOURCES = (NG_MODEL_CALL_CAPTURE_KEY, NG_AGENT_OBSERVATIONS_KEY, NG_TRAJECTORY_KEY)


def attach_trajectory(row: Mapping[str, Any], result: dict[str, Any]) -> None:
    """Give a result that carries any evidence its `ng_trajectory`; the capture then keeps no payloads of its own.

    Nothing raises: a trajectory that can't be built becomes a gap.
    """
    if all(result.get(name) is None for name in _SOURCES):
        return
    try:
        result[NG_TRAJECTORY_KEY] = build_trajectory(row, result).model_dump(mode="json")
    except Exception as error:
        _note_failure(row, result, type(error).__name__)
        return
    capture = result.get(NG_MODEL_CALL_CAPTURE_KEY)
    for call in _mappings(capture.get("calls") if isinstance(capture, Mapping) else None):
        for name in PAYLOAD_FIELDS:
            call.pop(name, None)


def build_trajectory(row: Mapping[str, Any], result: Mapping[str, Any]) -> TrajectoryRecord:
    """The trajectory of a result, with a gap for whatever it lacks. Raises ValueError when the evidence contradicts."""
    parts = _Parts(*trajectory_identity(row))
    has_producer = result.get(NG_TRAJECTORY_KEY) is not None and parts.add_producer(result[NG_TRAJECTORY_KEY])
    if result.get(NG_AGENT_OBSERVATIONS_KEY) is not None:
        parts.add_observations(result[NG_AGENT_OBSERVATIONS_KEY])
    capture = result.get(NG_MODEL_CALL_CAPTURE_KEY)
    capture = capture if isinstance(capture, Mapping) else {}
    captured = [ModelCallRecord.model_validate(call) for call in _mappings(capture.get("calls"))]
    for call in captured:
        parts.add_call(projected(call))
    if not has_producer:
        identity = (parts.task_id, parts.rollout_id)
        parts.turns = list(captured_turns(captured, parts.invocations, identity, _resolution(result)))
    parts.note_what_is_missing(has_producer=has_producer)
    parts.gaps += [ObservationGap.model_validate(gap) for gap in _mappings(capture.get("gaps"))]
    return parts.record()


class _Parts:
    """A trajectory while it is put together."""

    def __init__(self, task_id: str, rollout_id: str) -> None:
        self.task_id = task_id
        self.rollout_id = rollout_id
        self.invocations: list[AgentInvocation] = []
        self.turns: list[TrajectoryTurn] = []
        self.model_calls: list[TrajectoryModelCall] = []
        self.tool_calls: list[TrajectoryToolCall] = []
        self.gaps: list[ObservationGap] = []

    def gap(self, code: str, detail: str | None = None) -> None:
        self.gaps.append(ObservationGap(code=code, detail=detail))

    def add_producer(self, trajectory: Any) -> bool:
        """Take over a trajectory that came with the result, under the canonical ids; False when it is none."""
        try:
            given = TrajectoryRecord.model_validate(trajectory)
        except ValidationError as error:
            self.gap(PRODUCER_INVALID, _first_problem(error))
            return False
        self.invocations, self.model_calls = given.invocations, given.model_calls
        self.tool_calls, self.gaps = given.tool_calls, given.gaps
        own = {"task_id": self.task_id, "rollout_id": self.rollout_id}
        self.turns = [turn.model_copy(update=own) for turn in given.turns]
        if wrong := [name for name, value in own.items() if getattr(given, name) != value]:
            self.gap(IDENTITY_MISMATCH, ",".join(wrong))
        return True

    def add_observations(self, observations: Any) -> None:
        """Add what the agent observed to what is there."""
        try:
            bundle = AgentObservationBundle.model_validate(observations)
        except ValidationError as error:
            self.gap(OBSERVATIONS_INVALID, _first_problem(error))
            return
        known = {invocation.invocation_id for invocation in self.invocations}
        observed = [record for record in bundle.records if isinstance(record, AgentInvocation)]
        self.invocations += [invocation for invocation in observed if invocation.invocation_id not in known]
        for record in bundle.records:
            if isinstance(record, ToolCallObservation):
                self._add_tool_call(record)
        self._fill_outputs(observed)
        self.gaps += bundle.gaps

    def _add_tool_call(self, observed: ToolCallObservation) -> None:
        key = (observed.invocation_id, observed.tool_call_id)
        for place, known in enumerate(self.tool_calls):
            if (known.invocation_id, known.tool_call_id) == key:
                self.tool_calls[place] = _merged(known, observed)
                return
        self.tool_calls.append(TrajectoryToolCall(**observed.model_dump()))

    def _fill_outputs(self, observed: Iterable[AgentInvocation]) -> None:
        outputs = dict(_tool_outputs([*observed, *self.invocations]))
        for call in self.tool_calls:
            if call.output is None:
                call.output = outputs.get((call.invocation_id, call.tool_call_id))

    def add_call(self, call: TrajectoryModelCall) -> None:
        """Add a captured call, or complete the one with its id."""
        for place, known in enumerate(self.model_calls):
            if known.model_call_id is not None and known.model_call_id == call.model_call_id:
                self.model_calls[place] = _completed(known, call)
                return
        self.model_calls.append(call)

    def note_what_is_missing(self, *, has_producer: bool) -> None:
        if not self.model_calls:
            self.gap(CALLS_UNAVAILABLE)
        if not self.turns and not has_producer:
            self.gap(TURNS_UNAVAILABLE)
        if not any(invocation.conversation for invocation in self.invocations):
            self.gap(CONVERSATION_UNAVAILABLE)

    def record(self) -> TrajectoryRecord:
        distinct = {(gap.code, gap.invocation_id, gap.detail): gap for gap in reversed(self.gaps)}
        return TrajectoryRecord(
            task_id=self.task_id,
            rollout_id=self.rollout_id,
            invocations=self.invocations,
            turns=sorted(self.turns, key=lambda turn: (turn.timestamp, turn.invocation_id, turn.turn_no)),
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            gaps=list(reversed(distinct.values())),
        )


def projected(call: ModelCallRecord) -> TrajectoryModelCall:
    """A captured call as trajectories show it."""
    response = call.response if call.response is not None else call.response_raw
    status = call.response.get("status") if call.response is not None else None
    return TrajectoryModelCall(
        model_call_id=call.model_call_id,
        started_at=call.started_at,
        completed_at=call.completed_at,
        duration_ms=call.latency_total_ms,
        request=call.request if call.request is not None else call.request_raw,
        response=response,
        response_metadata=TrajectoryResponseMetadata(
            response_id=call.response_id,
            model_ref=call.model_ref,
            model=call.model,
            dialect=call.dialect,
            status_code=call.status_code,
            response_status=call.response_status or (status if isinstance(status, str) else None),
            finish_reason=call.finish_reason,
            upstream_attempted=call.upstream_attempted,
            response_source=call.response_source,
            upstream_status_code=call.upstream_status_code,
            local_response_reason=call.local_response_reason,
            error_category=call.error_category,
            latency_ttft_ms=call.latency_ttft_ms,
        ),
        token_stats=TrajectoryTokenStats(
            prompt_tokens=call.tokens_in,
            completion_tokens=call.tokens_out,
            reasoning_tokens=call.tokens_reasoning,
            total_tokens=call.tokens_total,
            cached_tokens=call.cached_tokens,
        ),
    )


def _completed(known: TrajectoryModelCall, captured: TrajectoryModelCall) -> TrajectoryModelCall:
    """The producer's account of a call, and the capture's wherever it says nothing."""
    parts = {
        name: _filled(getattr(known, name), getattr(captured, name)) for name in ("response_metadata", "token_stats")
    }
    return _filled(known, captured).model_copy(update=parts)


def _filled(known: _Model, other: _Model) -> _Model:
    missing = [name for name in type(known).model_fields if getattr(known, name) is None]
    return known.model_copy(update={name: getattr(other, name) for name in missing})


def _merged(known: TrajectoryToolCall, observed: ToolCallObservation) -> TrajectoryToolCall:
    """A tool call as it was last observed: what is unknown never replaces what is known."""
    told = {name: value for name, value in observed.model_dump().items() if value is not None}
    if observed.status == "unknown":
        del told["status"]
    return TrajectoryToolCall.model_validate({**known.model_dump(), **told})


def _tool_outputs(invocations: Iterable[AgentInvocation]) -> Iterator[tuple[tuple[str, str], Any]]:
    for invocation in invocations:
        for item in invocation.conversation:
            fields = item.model_dump() if not isinstance(item, Mapping) else item
            if fields.get("type") == "function_call_output" and isinstance(fields.get("call_id"), str):
                yield (invocation.invocation_id, fields["call_id"]), fields.get("output")


def _note_failure(row: Mapping[str, Any], result: dict[str, Any], detail: str) -> None:
    gap = {"code": PROJECTION_FAILED, "detail": detail}
    for name in (NG_MODEL_CALL_CAPTURE_KEY, NG_AGENT_OBSERVATIONS_KEY):
        source = result.get(name)
        if isinstance(source, dict):
            gaps = source.get("gaps")
            source["gaps"] = [*(gaps if isinstance(gaps, list) else ()), gap]
            return
    try:
        task_id, rollout_id = trajectory_identity(row)
    except ValueError:
        task_id, rollout_id = "unknown", "unknown"
    minimal = TrajectoryRecord(task_id=task_id, rollout_id=rollout_id, gaps=[ObservationGap.model_validate(gap)])
    result[NG_TRAJECTORY_KEY] = minimal.model_dump(mode="json")


def _resolution(result: Mapping[str, Any]) -> bool | None:
    resolved = result.get("resolved")
    return resolved if isinstance(resolved, bool) else None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, problem["loc"]))
    return f"{place}: {problem['msg']}" if place else problem["msg"]


def _mappings(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
