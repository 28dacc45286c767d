"""A whole rollout as turns, model calls and tool calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from nemo_gym.schema.observations import (
    AgentInvocation,
    AgentObservationBundle,
    Count,
    Milliseconds,
    ModelCallRef,
    ObservationGap,
    ObservationModel,
    ToolCallObservation,
    any_server_ref,
    check_invocations,
)
from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.schema.server_refs import ModelServerRef


class TrajectoryTurn(ObservationModel):
    """One question and its answer; `step_count` is the number of tool calls so far."""

    invocation_id: str
    task_id: str
    rollout_id: str
    turn_no: int = Field(ge=1)
    timestamp: float
    question: Any | None = None
    answer: Any | None = None
    reasoning_content: Any | None = None
    resolved: bool | None = None
    step_count: int = Field(ge=0)
    model_calls: list[ModelCallRef] = Field(default_factory=list)


class TrajectoryToolCall(ToolCallObservation):
    """A tool call with what it returned."""

    output: Any | None = None


class TrajectoryResponseMetadata(ObservationModel):
    """How a model call was answered."""

    response_id: str | None = None
    model_ref: Annotated[ModelServerRef | None, BeforeValidator(any_server_ref)] = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: Literal["upstream", "local"] | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: Milliseconds | None = None


class TrajectoryTokenStats(ObservationModel):
    """Tokens of a model call; null where nobody said."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_tokens: Count | None = None
    cached_tokens: Count | None = None


class TrajectoryModelCall(ObservationModel):
    """One captured model call."""

    model_call_id: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: Milliseconds | None = None
    request: Any | None = None
    response: Any | None = None
    response_metadata: TrajectoryResponseMetadata = Field(default_factory=TrajectoryResponseMetadata)
    token_stats: TrajectoryTokenStats = Field(default_factory=TrajectoryTokenStats)


def _refuse_repeats(what: str, keys: Iterable[object]) -> None:
    seen: set[object] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{what} {key!r} is given twice")
        seen.add(key)


class TrajectoryRecord(ObservationModel):
    """The trajectory of one rollout."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[TrajectoryTurn] = Field(default_factory=list)
    model_calls: list[TrajectoryModelCall] = Field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def validate_identity(self) -> Self:
        """Refuses repeated ids, and turns of another rollout."""
        check_invocations(self.invocations)
        _refuse_repeats("model call", (call.model_call_id for call in self.model_calls if call.model_call_id))
        _refuse_repeats("turn", ((turn.invocation_id, turn.turn_no) for turn in self.turns))
        for turn in self.turns:
            if (turn.task_id, turn.rollout_id) != (self.task_id, self.rollout_id):
                raise ValueError(f"turn {turn.turn_no} belongs to another rollout: {turn.task_id}, {turn.rollout_id}")
        return self


@dataclass
class AgentEpisode:
    """What an agent answered and what it observed."""

    response: NeMoGymResponse
    observations: AgentObservationBundle
