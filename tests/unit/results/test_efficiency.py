from __future__ import annotations

import pytest

from nemo_gym.reward_profile import compute_aggregate_metrics, compute_perf_summary
from tests.unit.results.rollouts import result

PERF: list[dict[str, float | None]] = [
    {"num_turns": 1, "token_observability_coverage": 1.0, "completion_tokens": 10, "total_latency_ms": 100.0},
    {"num_turns": 3, "token_observability_coverage": 0.5, "completion_tokens": 60, "prompt_tokens": 7},
    {"num_turns": 0, "token_observability_coverage": 0.0, "completion_tokens": 5, "total_latency_ms": 300.0},
    {"num_turns": None, "total_latency_ms": float("nan")},
]


def test_nothing_to_say() -> None:
    assert compute_perf_summary([], 4) is None
    assert compute_perf_summary(PERF, 0) is None


def test_summary() -> None:
    assert compute_perf_summary(PERF, 8) == pytest.approx(
        {
            "overall_observability_coverage": 0.5,
            "token_observability_coverage": 0.25,
            "mean_prompt_tokens": 7,
            "median_prompt_tokens": 7,
            "total_prompt_tokens": 7,
            "mean_completion_tokens": 25,
            "median_completion_tokens": 10,
            "total_completion_tokens": 75,
            "mean_num_turns": 4 / 3,
            "median_num_turns": 1,
            "std_num_turns": (14 / 9) ** 0.5,
            "min_num_turns": 0,
            "p90_num_turns": 2.6,
            "max_num_turns": 3,
            "mean_tokens_per_turn": 15,
            "median_tokens_per_turn": 15,
            "total_latency_p50_ms": 200,
            "total_latency_p90_ms": 280,
            "total_latency_p99_ms": 298,
            "total_latency_mean_ms": 200,
        }
    )


def test_masked_rollouts_cost_too() -> None:
    responses = [result(0, 0, 1.0, ng_perf=PERF[0]), result(0, 1, 0.0, ng_perf=PERF[1], mask_sample=True), result(0, 2)]
    summary = compute_aggregate_metrics(responses).perf_summary
    assert summary is not None
    assert summary["overall_observability_coverage"] == pytest.approx(2 / 3)
    assert summary["total_completion_tokens"] == 70
