from __future__ import annotations

import pytest

from nemo_gym.metrics_config import ACROSS_REPEATS_MARKER, PassMajorityStat, Stat, is_primary_metric
from nemo_gym.reward_profile import is_repeat_aggregatable_metric


def test_prefixes_and_suffixes() -> None:
    assert Stat.CI_LOW_95.prefix == "ci_low_95/"
    assert Stat.MEAN.across_repeats_prefix == "mean_across_repeats/"
    assert ACROSS_REPEATS_MARKER == "_across_repeats/"
    assert PassMajorityStat.AVG_SAMPLE_STD_DEV.suffix == "/avg_sample_std_dev"


@pytest.mark.parametrize(
    "name",
    [
        "mean/reward",
        "reward",
        "pass@1/accuracy",
        "pass@1[avg-of-4]/accuracy",
        "majority@2/accuracy",
        "mean/steps",
        "win_rate",
    ],
)
def test_quantities_of_their_own(name: str) -> None:
    assert is_primary_metric(name)
    assert is_repeat_aggregatable_metric(name)


@pytest.mark.parametrize(
    "name",
    [
        "_ng_task_index",
        "_ng_rollout_index",
        "_ng_attempt_index",
        "sample_count",
        "missing_count",
        "num_repeats",
        "token_usage_version",
        "max/reward",
        "min/reward",
        "median/reward",
        "std/reward",
        "sem/reward",
        "se/reward",
        "p25/reward",
        "p75/reward",
        "ci_low_95/reward",
        "ci_high_95/reward",
        "histogram/reward",
        "mean_across_repeats/mean/reward",
        "se_across_repeats/mean/reward",
        "elo/max",
        "elo/p5",
        "elo/p95",
        "elo/ci_upper",
        "elo_ci_lower",
        "elo_ci95_upper",
        "mean/_ng_attempt_index",
        "pass@1[avg-of-4]/accuracy/std_dev_across_runs",
        "pass@1[avg-of-4]/accuracy/std_err_across_runs",
        "pass@1[avg-of-4]/accuracy/avg_sample_std_dev",
        3,
        None,
    ],
)
def test_counts_indices_and_statistics_of_others(name: object) -> None:
    assert not is_primary_metric(name)
