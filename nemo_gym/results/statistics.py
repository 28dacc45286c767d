"""Statistics of numbers by group, computed for all groups in one sort."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nemo_gym.results.student_t import t_quantile

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class GroupStatistics:
    """One entry per group; NaN where the group has too few numbers.

    `ordered` holds the numbers sorted by (group, value) and `starts` where each group begins in it.
    """

    counts: Integers
    mean: Floats
    std: Floats
    ordered: Floats
    starts: Integers

    @property
    def min(self) -> Floats:
        return self._pick(self.starts)

    @property
    def max(self) -> Floats:
        return self._pick(self.starts + self.counts - 1)

    @property
    def median(self) -> Floats:
        return self.quantile(0.5)

    def quantile(self, fraction: float) -> Floats:
        """The value at `fraction` of the way through each group's sorted numbers, linear between neighbours."""
        position = (self.counts - 1) * fraction
        below = np.floor(position).astype(np.int64)
        above = np.minimum(below + 1, self.counts - 1)
        low, high = self._pick(self.starts + below), self._pick(self.starts + above)
        weight = position - below
        with np.errstate(invalid="ignore", over="ignore"):
            between = np.where(weight >= 0.5, high - (high - low) * (1 - weight), low + (high - low) * weight)
        return np.where(low == high, low, between)

    def _pick(self, positions: Integers) -> Floats:
        picked = np.full(len(self.counts), np.nan)
        present = self.counts > 0
        picked[present] = self.ordered[positions[present]]
        return picked


def statistics_by_group(values: Floats, groups: Integers, number_of_groups: int) -> GroupStatistics:
    """Statistics of `values` for groups numbered 0 … n-1. NaN values are missing, and count nowhere.

    `std` is the sample standard deviation (n - 1), NaN for fewer than two numbers.
    """
    present = ~np.isnan(values)
    ordered, groups = _sorted_by_group_and_value(values[present], groups[present], number_of_groups)
    counts = np.bincount(groups, minlength=number_of_groups).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.bincount(groups, weights=ordered, minlength=number_of_groups) / counts
        spread = GroupStatistics(counts, mean, mean, ordered, starts)
        constant = spread.min == spread.max
        mean = np.where(constant, spread.min, mean)
        squares = np.bincount(groups, weights=(ordered - mean[groups]) ** 2, minlength=number_of_groups)
        std = np.where(counts > 1, np.sqrt(squares / (counts - 1)), np.nan)
    return GroupStatistics(counts, mean, std, ordered, starts)


def confidence_interval(
    mean: float, standard_error: float, count: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Two-sided Student t interval around `mean` of `count` > 1 independent numbers."""
    reach = t_quantile((1 + confidence) / 2, count - 1) * standard_error
    return mean - reach, mean + reach


def _sorted_by_group_and_value(values: Floats, groups: Integers, number_of_groups: int) -> tuple[Floats, Integers]:
    by_value = np.argsort(values, kind="stable")
    groups = groups[by_value]
    # numpy sorts 16-bit integers by radix, in linear time.
    narrow = groups.astype(np.uint16) if number_of_groups <= 2**16 else groups
    by_group = np.argsort(narrow, kind="stable")
    return values[by_value][by_group], groups[by_group]
