"""One episode between collector and environment server: who asks for what, and how it ended."""

import re
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from nemo_gym.schema.failure_kinds import FailureStage, validate_failure_kind

MAX_ID_CHARS = 180
"""A file is named by the id, a suffix for the attempt and an ending: file systems take 255 characters."""
ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_ATTEMPT_SUFFIX = re.compile(r"-a[1-9][0-9]*\Z")

TaskInputT = TypeVar("TaskInputT")
EpisodeResultT = TypeVar("EpisodeResultT")


class EpisodeId(BaseModel):
    """One attempt at one rollout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollout_id: str = Field(min_length=1, max_length=MAX_ID_CHARS, pattern=ID_PATTERN)
    attempt: int = Field(default=0, ge=0)

    @field_validator("rollout_id")
    @classmethod
    def reserve_attempt_suffix(cls, rollout_id: str) -> str:
        """Refuses ids that look like `capture_key` of another attempt."""
        if _ATTEMPT_SUFFIX.search(rollout_id):
            raise ValueError("rollout_id must not end in -a<N>: that suffix marks attempts")
        return rollout_id

    @property
    def capture_key(self) -> str:
        """The id under which model calls of this attempt are captured."""
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id


class TaskId(BaseModel):
    """A task within its task set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    taskset: str = Field(min_length=1)
    task_id: str = Field(min_length=1)


class EpisodeFailure(BaseModel):
    """Why an episode has no result. `terminal` means that another attempt is pointless."""

    model_config = ConfigDict(extra="forbid")

    failure_reason: str = Field(max_length=2000)
    terminal: bool
    failure_kind: str | None = None
    stage: FailureStage | None = None

    @field_validator("failure_kind")
    @classmethod
    def _validate_failure_kind(cls, value: str | None) -> str | None:
        return validate_failure_kind(value)

    @model_serializer(mode="wrap")
    def _serialize_failure(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if key not in ("failure_kind", "stage") or value is not None}


class MaterializedTask(BaseModel, Generic[TaskInputT]):
    """A task with its input."""

    model_config = ConfigDict(extra="forbid")

    task_id: TaskId
    task_input: TaskInputT


class BaseEpisodeRequest(BaseModel, Generic[TaskInputT]):
    """Asks an environment server for one episode."""

    model_config = ConfigDict(extra="forbid")

    episode_id: EpisodeId
    task: MaterializedTask[TaskInputT]


class BaseEpisodeResponse(BaseModel, Generic[EpisodeResultT]):
    """An episode's result or its failure, never both."""

    model_config = ConfigDict(extra="forbid")

    episode_id: EpisodeId
    task_id: TaskId
    result: EpisodeResultT | None = None
    failure: EpisodeFailure | None = None

    @model_validator(mode="after")
    def validate_result(self) -> Self:
        """Refuses both or neither of result and failure."""
        if (self.result is None) == (self.failure is None):
            raise ValueError("an episode response needs exactly one of result and failure")
        return self


def is_materialized_task_row(row: Mapping[str, Any]) -> bool:
    """True for a row of the form {task_id: {...}, task_input: ...}; the input itself isn't checked."""
    return isinstance(row.get("task_id"), Mapping) and "task_input" in row
