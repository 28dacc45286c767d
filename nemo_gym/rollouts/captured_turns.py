"""The turns of agents that record none themselves: one for each captured call that an invocation refers to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nemo_gym.capture.answers import Answer
from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.schema.observations import AgentInvocation, ModelCallRef
from nemo_gym.schema.trajectories import TrajectoryTurn

_QUESTION_FIELDS = ("input", "messages")


def captured_turns(
    calls: Iterable[ModelCallRecord],
    invocations: Iterable[AgentInvocation],
    identity: tuple[str, str],
    resolved: bool | None,
) -> Iterator[TrajectoryTurn]:
    """Turns numbered within each invocation, in the order of their calls; `identity` is (task id, rollout id).

    `step_count` is the number of tool calls that earlier turns asked for; the last turn gets `resolved`.
    """
    owned = sorted(_owned(calls, list(invocations)), key=lambda pair: (_time_of(pair[0]), pair[0].call_index))
    task_id, rollout_id = identity
    turns_of: dict[str, int] = {}
    steps_of: dict[str, int] = {}
    for position, (call, (invocation_id, reference)) in enumerate(owned, start=1):
        turns_of[invocation_id] = turns_of.get(invocation_id, 0) + 1
        steps = steps_of.get(invocation_id, 0)
        steps_of[invocation_id] = steps + len(call.tool_calls)
        yield TrajectoryTurn(
            invocation_id=invocation_id,
            task_id=task_id,
            rollout_id=rollout_id,
            turn_no=turns_of[invocation_id],
            timestamp=_time_of(call),
            question=_question(call.request),
            answer=Answer.of(call.response or {}).content,
            reasoning_content=call.reasoning_content,
            resolved=resolved if position == len(owned) else None,
            step_count=steps,
            model_calls=[reference],
        )


def _owned(
    calls: Iterable[ModelCallRecord], invocations: list[AgentInvocation]
) -> Iterator[tuple[ModelCallRecord, tuple[str, ModelCallRef]]]:
    by_id: dict[str, tuple[str, ModelCallRef]] = {}
    by_answer: dict[tuple[str, str], tuple[str, ModelCallRef]] = {}
    for invocation in invocations:
        for reference in invocation.model_calls:
            owner = (invocation.invocation_id, reference)
            if reference.model_call_id is not None:
                by_id.setdefault(reference.model_call_id, owner)
            elif reference.model_ref is not None and reference.response_id is not None:
                by_answer.setdefault((reference.model_ref.name, reference.response_id), owner)
    for call in calls:
        owner_of_call = by_id.get(call.model_call_id or "")
        if owner_of_call is None and call.model_ref is not None and call.response_id is not None:
            owner_of_call = by_answer.get((call.model_ref.name, call.response_id))
        if owner_of_call is not None and call.response is not None:
            yield call, owner_of_call


def _time_of(call: ModelCallRecord) -> float:
    return call.started_at if call.started_at is not None else call.completed_at or 0.0


def _question(request: Mapping[str, Any] | None) -> Any:
    return next((request[name] for name in _QUESTION_FIELDS if name in request), None) if request else None
