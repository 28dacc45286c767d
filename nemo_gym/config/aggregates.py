"""What `/aggregate_metrics` takes and gives."""

from typing import Any

from pydantic import BaseModel, Field, field_validator

from nemo_gym.config.keys import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME

_LARGEST_INDEX = 1 << 63


class AggregateMetricsRequest(BaseModel):
    """The verify responses of one agent's rollouts, in rollout order."""

    verify_responses: list[dict[str, Any]]

    @field_validator("verify_responses")
    @classmethod
    def require_integer_indices(cls, verify_responses: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Refuses an index that is there and is no integer, naming its row."""
        for row, response in enumerate(verify_responses):
            for name in (TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME):
                index = response.get(name)
                if index is not None and not (type(index) is int and abs(index) < _LARGEST_INDEX):
                    raise ValueError(f"row {row}: `{name}` must be an integer, not {index!r:.100}")
        return verify_responses


class AggregateMetrics(BaseModel):
    """Metrics of one agent: per task group, over all rollouts, and the few to show first."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)
    perf_summary: dict[str, Any] | None = None
    repeat_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
