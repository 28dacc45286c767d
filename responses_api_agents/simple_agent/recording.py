"""What an activation of the agent was asked, did and answered: for trajectories, and for who opened a session."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseFunctionToolCall
from nemo_gym.rollout_observability import (
    AgentInvocation,
    ModelCallRef,
    ObservationGap,
    ToolCallObservation,
    TrajectoryRecord,
    TrajectoryToolCall,
    TrajectoryTurn,
)

TRAJECTORY_KEY = "_ng_trajectory"
"""Where a response carries its trajectory from `/v1/responses` to `/run`, which takes it out."""

UNKNOWN_TASK = "unknown"
_TASK_ID_FIELDS = ("task_id", "problem_id", "instance_id", "_ng_task_index")


@dataclass
class Recording:
    """One activation, as it goes on."""

    invocation_id: str
    model_ref: ModelServerRef
    turns: list[dict[str, Any]] = field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = field(default_factory=list)
    model_calls: list[ModelCallRef] = field(default_factory=list)
    gaps: list[ObservationGap] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def add_turn(self, question: list[Any], asked_at: float, raw: dict[str, Any]) -> None:
        """A model call; `raw` is the answer as it came, `asked_at` in unix seconds."""
        reasoning = [item for item in raw["output"] if item.get("type") == "reasoning"]
        calls = [self._ref_to(raw.get("id"))]
        self.turns.append(
            {
                "invocation_id": self.invocation_id,
                "turn_no": len(self.turns) + 1,
                "timestamp": asked_at,
                "question": question,
                "answer": [item for item in raw["output"] if item.get("type") != "reasoning"],
                "reasoning_content": reasoning or None,
                "step_count": len(self.tool_calls),
                "model_calls": [call for call in calls if call is not None],
            }
        )

    def _ref_to(self, response_id: Any) -> ModelCallRef | None:
        if not response_id:
            detail = f"turn:{len(self.turns) + 1}"
            gap = ObservationGap(
                code="model_call_reference_unavailable", invocation_id=self.invocation_id, detail=detail
            )
            self.gaps.append(gap)
            return None
        call = ModelCallRef(model_ref=self.model_ref, response_id=response_id)
        self.model_calls.append(call)
        return call

    def add_tool_call(
        self,
        call: NeMoGymResponseFunctionToolCall,
        started_at: float,
        *,
        output: str | None,
        error_type: str | None,
    ) -> None:
        """A tool call that ended now; `started_at` in unix seconds. It failed if it has an `error_type`."""
        completed_at = max(time.time(), started_at)
        self.tool_calls.append(
            TrajectoryToolCall(
                invocation_id=self.invocation_id,
                tool_call_id=call.call_id,
                tool_name=call.name,
                started_at=started_at,
                completed_at=completed_at,
                duration_ms=(completed_at - started_at) * 1000,
                timing_source="executor",
                status="completed" if error_type is None else "failed",
                error_type=error_type,
                output=output,
            )
        )

    def invocation(
        self,
        status: Literal["completed", "failed", "incomplete"],
        conversation: list[Any],
        error: BaseException | None = None,
    ) -> AgentInvocation:
        """The activation as a whole, now that it is over; a conversation that can't be read is a gap."""
        invocation = AgentInvocation(
            invocation_id=self.invocation_id,
            status=status,
            duration_ms=(time.monotonic() - self.started) * 1000,
            error_type=None if error is None else type(error).__name__,
            model_calls=self.model_calls,
        )
        try:
            invocation.conversation = conversation
        except ValidationError:
            self.gaps.append(ObservationGap(code="conversation_unavailable", invocation_id=self.invocation_id))
        return invocation

    def tool_observations(self) -> list[ToolCallObservation]:
        """The tool calls without what they returned, which the conversation has."""
        return [ToolCallObservation.model_validate(call.model_dump(exclude={"output"})) for call in self.tool_calls]

    def trajectory(self, rollout_id: str, invocation: AgentInvocation) -> TrajectoryRecord:
        """The rollout as its own agent saw it, of a task whose name it doesn't know yet."""
        identity = {"task_id": UNKNOWN_TASK, "rollout_id": rollout_id}
        return TrajectoryRecord(
            **identity,
            invocations=[invocation],
            turns=[TrajectoryTurn.model_validate({**turn, **identity}) for turn in self.turns],
            tool_calls=self.tool_calls,
            gaps=self.gaps,
        )


def with_trajectory(response: NeMoGymResponse, trajectory: TrajectoryRecord) -> NeMoGymResponse:
    return response.model_copy(update={TRAJECTORY_KEY: trajectory.model_dump(mode="json")})


def take_trajectory(response: Any, row: dict[str, Any]) -> dict[str, Any] | None:
    """Take the trajectory out of a response's JSON, if it has one, and give it the name of the row's task."""
    trajectory = response.pop(TRAJECTORY_KEY, None) if isinstance(response, dict) else None
    if not isinstance(trajectory, dict):
        return None
    named = next((row[name] for name in _TASK_ID_FIELDS if row.get(name) is not None), UNKNOWN_TASK)
    for part in (trajectory, *trajectory.get("turns", ())):
        part["task_id"] = str(named)
    return trajectory


def add_resolution(trajectory: dict[str, Any], verdict: dict[str, Any]) -> None:
    """Say in the last turn whether the task was resolved, as far as the verdict tells."""
    turns = trajectory.get("turns")
    if turns and isinstance(verdict.get("resolved"), bool):
        turns[-1]["resolved"] = verdict["resolved"]
    else:
        gap = ObservationGap(code="resolution_unavailable")
        trajectory.setdefault("gaps", []).append(gap.model_dump(mode="json"))
