"""How metrics are named, and which of those names stand for a quantity of their own."""

from __future__ import annotations

from enum import StrEnum

ACROSS_REPEATS_MARKER = "_across_repeats/"


class Stat(StrEnum):
    """A statistic over rollouts, repeats or tasks. The name of a metric is `<stat>/<column>`."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    MEDIAN = "median"
    STD = "std"
    SEM = "sem"
    SE = "se"
    P25 = "p25"
    P75 = "p75"
    CI_LOW_95 = "ci_low_95"
    CI_HIGH_95 = "ci_high_95"
    HISTOGRAM = "histogram"

    @property
    def prefix(self) -> str:
        return f"{self.value}/"

    @property
    def across_repeats_prefix(self) -> str:
        return f"{self.value}{ACROSS_REPEATS_MARKER}"


class PassMajorityStat(StrEnum):
    """A statistic of a pass@k or majority@k metric. The name is `<metric>/<stat>`."""

    STD_DEV_ACROSS_RUNS = "std_dev_across_runs"
    STD_ERR_ACROSS_RUNS = "std_err_across_runs"
    AVG_SAMPLE_STD_DEV = "avg_sample_std_dev"

    @property
    def suffix(self) -> str:
        return f"/{self.value}"


PASS_MAJORITY_SUFFIXES = tuple(stat.suffix for stat in PassMajorityStat)

_COUNTS_AND_INDICES = frozenset(
    {
        "_ng_task_index",
        "_ng_rollout_index",
        "_ng_attempt_index",
        "sample_count",
        "missing_count",
        "num_repeats",
        "token_usage_version",
    }
)
_DERIVED_PREFIXES = tuple(stat.prefix for stat in Stat if stat is not Stat.MEAN)
_DERIVED_SUFFIXES = (
    "/max",
    "/min",
    "/median",
    "/p5",
    "/p25",
    "/p75",
    "/p95",
    "/ci_low_95",
    "/ci_high_95",
    "/ci_lower",
    "/ci_upper",
    "_ci_lower",
    "_ci_upper",
    "_ci95_lower",
    "_ci95_upper",
    "/_ng_attempt_index",
    *PASS_MAJORITY_SUFFIXES,
)


def is_primary_metric(name: object) -> bool:
    """True for a quantity worth comparing between repeats and runs; false for counts, indices and statistics."""
    return (
        isinstance(name, str)
        and name not in _COUNTS_AND_INDICES
        and not name.startswith(_DERIVED_PREFIXES)
        and not name.endswith(_DERIVED_SUFFIXES)
        and ACROSS_REPEATS_MARKER not in name
    )
