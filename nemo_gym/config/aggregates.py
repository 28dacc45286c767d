"""What `/aggregate_metrics` takes and gives."""

from typing import Any

from pydantic import BaseModel, Field


class AggregateMetricsRequest(BaseModel):
    """The verify responses of one agent's rollouts, in rollout order."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """Metrics of one agent: per task group, over all rollouts, and the few to show first."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)
    perf_summary: dict[str, Any] | None = None
    repeat_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
