"""Names of statistics in metrics, and which metrics stand for a quantity of their own."""

from nemo_gym.results.metric_names import ACROSS_REPEATS_MARKER, PassMajorityStat, Stat, is_primary_metric

__all__ = ["ACROSS_REPEATS_MARKER", "PassMajorityStat", "Stat", "is_primary_metric"]
