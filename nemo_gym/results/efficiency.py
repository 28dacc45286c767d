"""What a run cost in turns, tokens and time, from the `ng_perf` objects of its records."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any

from nemo_gym.results.records import as_number

_TOKEN_FIELDS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")

Perf = Mapping[str, Any]


def compute_perf_summary(ng_perf_records: Iterable[Perf], total_rollouts: int) -> dict[str, float] | None:
    """Efficiency of `total_rollouts` rollouts, of which some left a record. None when none did.

    Quantities that nobody reported are left out. Latencies are milliseconds, percentiles linear.
    """
    efficiency = Efficiency()
    for perf in ng_perf_records:
        efficiency.add(perf)
    return efficiency.summary(total_rollouts)


class Efficiency:
    """Collects `ng_perf` objects, keeping their numbers alone."""

    def __init__(self) -> None:
        self._records = 0
        self._with_tokens = 0
        self._tokens = {name: array("d") for name in _TOKEN_FIELDS}
        self._turns, self._tokens_per_turn, self._latencies = array("d"), array("d"), array("d")

    def add(self, perf: Perf) -> None:
        self._records += 1
        self._with_tokens += (_number(perf, "token_observability_coverage") or 0) > 0
        for name, column in self._tokens.items():
            _append(column, _number(perf, name))
        turns, completion = _number(perf, "num_turns"), _number(perf, "completion_tokens")
        _append(self._turns, turns)
        _append(self._tokens_per_turn, completion / turns if completion is not None and turns else None)
        _append(self._latencies, _number(perf, "total_latency_ms"))

    def summary(self, total_rollouts: int) -> dict[str, float] | None:
        if total_rollouts <= 0 or not self._records:
            return None
        return {
            "overall_observability_coverage": self._records / total_rollouts,
            "token_observability_coverage": self._with_tokens / total_rollouts,
            **self._token_metrics(),
            **self._turn_metrics(),
            **self._latency_metrics(),
        }

    def _token_metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for name, column in self._tokens.items():
            if column:
                metrics |= {
                    f"mean_{name}": fmean(column),
                    f"median_{name}": median(column),
                    f"total_{name}": sum(column),
                }
        return metrics

    def _turn_metrics(self) -> dict[str, float]:
        turns, rates = self._turns, self._tokens_per_turn
        metrics: dict[str, float] = {}
        if turns:
            metrics |= {"mean_num_turns": fmean(turns), "median_num_turns": median(turns)}
            metrics |= {"std_num_turns": pstdev(turns), "min_num_turns": min(turns)}
            metrics |= {"p90_num_turns": _percentile(turns, 90), "max_num_turns": max(turns)}
        if rates:
            metrics |= {"mean_tokens_per_turn": fmean(rates), "median_tokens_per_turn": median(rates)}
        return metrics

    def _latency_metrics(self) -> dict[str, float]:
        if not self._latencies:
            return {}
        percentiles = {f"total_latency_p{p}_ms": _percentile(self._latencies, p) for p in (50, 90, 99)}
        return percentiles | {"total_latency_mean_ms": fmean(self._latencies)}


def _append(column: array[float], number: float | None) -> None:
    if number is not None:
        column.append(number)


def _number(perf: Perf, name: str) -> float | None:
    number = as_number(name, perf.get(name))
    return None if number is None else float(number)


def _percentile(numbers: Sequence[float], percent: float) -> float:
    ordered = sorted(numbers)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
