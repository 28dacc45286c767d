"""Reward profiles, and the metrics that servers compute over a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nemo_gym.cli._compat import moved_attr_getter
from nemo_gym.config_types import AggregateMetrics
from nemo_gym.metrics_config import is_primary_metric
from nemo_gym.results.aggregate import AggregateMetricsMixin, KeyMetricsHook, MetricsHook, aggregate
from nemo_gym.results.coverage import coverage_by_agent, select_measured
from nemo_gym.results.efficiency import compute_perf_summary
from nemo_gym.results.pass_majority import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)
from nemo_gym.results.profiler import RewardProfiler

__all__ = [
    "AggregateMetricsMixin",
    "RewardProfiler",
    "add_avg_sample_std_dev",
    "compute_aggregate_metrics",
    "compute_pass_majority_metrics",
    "compute_perf_summary",
    "compute_subset_metrics",
    "coverage_by_agent",
    "highest_k_metrics",
    "is_repeat_aggregatable_metric",
    "select_measured",
]

is_repeat_aggregatable_metric = is_primary_metric

__getattr__ = moved_attr_getter(__name__, {"reward_profile": "nemo_gym.cli.eval"})


def compute_aggregate_metrics(
    verify_responses: Sequence[dict[str, Any]],
    compute_metrics_fn: MetricsHook | None = None,
    get_key_metrics_fn: KeyMetricsHook | None = None,
    compute_repeat_metrics_fn: MetricsHook | None = None,
) -> AggregateMetrics:
    """Group, agent and repeat level metrics of a run.

    Responses with a true `mask_sample` count in the coverage block and the efficiency summary only.
    `compute_metrics_fn` adds metrics of its own, `get_key_metrics_fn` chooses the headline (default: every `mean/…`),
    and `compute_repeat_metrics_fn` replaces general metrics of single repeats.
    """
    metrics = aggregate(verify_responses, compute_metrics_fn, get_key_metrics_fn, compute_repeat_metrics_fn)
    return AggregateMetrics(**vars(metrics))
