"""What an agent reports about its own run: invocations, tool calls, sandboxes, compactions, and what it can't say."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from nemo_gym.schema.item_unions import NeMoGymResponseInputItem
from nemo_gym.schema.server_refs import ModelServerRef

Milliseconds = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class ObservationModel(BaseModel):
    """Strict in its fields, at construction and at assignment."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


def any_server_ref(value: Any) -> Any:
    """Accepts an equal reference of another class, as configurations may hold."""
    foreign = isinstance(value, BaseModel) and not isinstance(value, ModelServerRef)
    return value.model_dump() if foreign else value


class ModelCallRef(ObservationModel):
    """Points to a captured model call, by its id or by model server and response id."""

    model_call_id: str | None = None
    model_ref: Annotated[ModelServerRef | None, BeforeValidator(any_server_ref)] = None
    response_id: str | None = None

    @model_validator(mode="after")
    def validate_join_key(self) -> Self:
        """Refuses a reference that can't be looked up."""
        if self.model_call_id is None and (self.model_ref is None or self.response_id is None):
            raise ValueError("a model call reference needs model_call_id, or both model_ref and response_id")
        return self


class AgentInvocation(ObservationModel):
    """One run of one agent, perhaps called by another."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: Literal["completed", "failed", "incomplete", "unknown"] = "unknown"
    duration_ms: Milliseconds | None = None
    error_type: str | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    conversation: list[NeMoGymResponseInputItem] = Field(default_factory=list)


class ToolCallObservation(ObservationModel):
    """One tool call as it ran; times in unix seconds."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: Milliseconds | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    status: Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"] = "unknown"
    error_type: str | None = None

    @model_validator(mode="after")
    def validate_timing(self) -> Self:
        """Refuses an end before the start."""
        if self.started_at is not None and self.completed_at is not None and self.completed_at < self.started_at:
            raise ValueError("completed_at must not be before started_at")
        return self


class SandboxObservation(ObservationModel):
    """What a sandbox was used for and what it used."""

    kind: Literal["sandbox"] = "sandbox"
    role: Literal["agent", "verifier", "environment"]
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: Literal["completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"] = "unknown"
    exit_code: int | None = None
    wall_time_s: Seconds | None = None
    cpu_time_s: Seconds | None = None
    peak_memory_mib: Annotated[float, Field(ge=0)] | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class ContextCompactionObservation(ObservationModel):
    """An agent folded its history."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    tokens_before: Count | None = None
    tokens_after: Count | None = None
    outcome: Literal["completed", "failed", "aborted", "unknown"] = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: ModelCallRef | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    after_model_call: ModelCallRef | None = None


class ObservationGap(ObservationModel):
    """Something that is known to be unknown."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


AgentObservationRecord = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompactionObservation | SandboxObservation,
    Field(discriminator="kind"),
]


def check_invocations(invocations: Iterable[AgentInvocation]) -> None:
    """Raises ValueError for an invocation id given twice or a cycle of parents; absent parents are fine."""
    parents: dict[str, str | None] = {}
    for invocation in invocations:
        if invocation.invocation_id in parents:
            raise ValueError(f"invocation id {invocation.invocation_id!r} is given twice")
        parents[invocation.invocation_id] = invocation.parent_invocation_id
    acyclic: set[str] = set()
    for start in parents:
        path: set[str] = set()
        current: str | None = start
        while current is not None and current not in acyclic:
            if current in path:
                raise ValueError(f"invocation {current!r} is its own ancestor")
            path.add(current)
            current = parents.get(current)
        acyclic |= path


class AgentObservationBundle(ObservationModel):
    """Everything one agent observed, in no particular order."""

    source: str
    records: list[AgentObservationRecord] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def validate_identity(self) -> Self:
        """Refuses ambiguous invocation ids and cycles."""
        check_invocations(record for record in self.records if isinstance(record, AgentInvocation))
        return self
