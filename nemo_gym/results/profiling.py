"""The three views of a table of rollouts: one entry per task, per agent, and per repeat."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nemo_gym.results.infos import rollout_infos
from nemo_gym.results.metric_names import Stat, is_primary_metric
from nemo_gym.results.statistics import Floats, GroupStatistics, Integers, confidence_interval, statistics_by_group
from nemo_gym.results.table import RolloutTable

LOG = logging.getLogger(__name__)

Entry = dict[str, Any]
GroupKey = tuple[int, int]
"""(task index, run). The run is -1 where entries are per task only."""

_ROWS_PER_BLOCK = 1 << 16
_GROUP_STATS = (Stat.MEAN, Stat.MAX, Stat.MIN, Stat.MEDIAN, Stat.STD)


@dataclass(frozen=True)
class Profile:
    """Metrics of a sealed table whose runs are numbered in the order of `labels`.

    Groups are tasks, or (task, run) if `by_run`. `sample` gives what a group's entry shows as the task, `expected` the
    number of rollouts planned for it (default: as many as there are).
    """

    table: RolloutTable
    labels: Sequence[str]
    by_run: bool
    sample: Callable[[GroupKey], Any]
    expected: Callable[[GroupKey], int] | None = None

    def groups(self) -> Iterator[Entry]:
        """One entry per group, ascending by task and label."""
        tasks, runs, rollouts = self._identity()
        group_runs = runs if self.by_run else np.full(len(runs), -1)
        label_ranks = self._label_ranks()[runs] if self.by_run else group_runs
        order = np.lexsort((rollouts, label_ranks, tasks))
        for block in _whole_groups(order, tasks, group_runs):
            yield from self._group_entries(block, tasks, group_runs)

    def agents(self) -> list[Entry]:
        """One entry per label, sorted by label: its statistics, and those across its repeats."""
        present, groups = np.unique(self._label_ranks()[self._identity()[1]], return_inverse=True)
        entries = self._statistics(np.arange(len(self.table)), groups, len(present))
        names = sorted(self.labels)
        for entry, rank in zip(entries, present.tolist(), strict=True):
            entry["agent_ref"] = {"name": names[rank]}
        return entries

    def agents_across(self, repeats: Iterable[Entry]) -> list[Entry]:
        """`agents()`, each with how its primary metrics vary between its repeats."""
        by_agent: dict[str, list[Entry]] = {}
        for entry in repeats:
            by_agent.setdefault(entry["agent_ref"]["name"], []).append(entry)
        entries = self.agents()
        for entry in entries:
            entry |= across_repeats(by_agent.get(entry["agent_ref"]["name"], []))
        return entries

    def repeats(self) -> list[Entry]:
        """One entry per (label, rollout index), for labels with more than one; sorted by both."""
        entries = [entry for rank, label in enumerate(sorted(self.labels)) for entry in self._repeats_of(rank, label)]
        short = sum(1 for entry in entries if entry["missing_count"])
        if short:
            LOG.warning("%d of %d repeats lack some tasks; their figures cover fewer tasks", short, len(entries))
        return entries

    def _identity(self) -> tuple[Integers, Integers, Integers]:
        table = self.table
        tasks, runs, rollouts = (
            np.frombuffer(ids, dtype=np.int64) for ids in (table.tasks, table.runs, table.rollouts)
        )
        return tasks, runs, rollouts

    def _label_ranks(self) -> Integers:
        """The place of each run's label in alphabetical order."""
        places = {label: place for place, label in enumerate(sorted(self.labels))}
        return np.array([places[label] for label in self.labels], dtype=np.int64)

    def _group_entries(self, rows: Integers, tasks: Integers, runs: Integers) -> Iterator[Entry]:
        starts = _group_starts(tasks[rows], runs[rows])
        groups = np.repeat(np.arange(len(starts)), np.diff([*starts, len(rows)]))
        infos = rollout_infos(self.table, rows)
        entries = self._statistics(rows, groups, len(starts))
        for entry, start, end in zip(entries, starts, [*starts[1:], len(rows)], strict=True):
            key = (int(tasks[rows[start]]), int(runs[rows[start]]))
            yield self._group_entry(key, entry, infos[start:end])

    def _group_entry(self, key: GroupKey, statistics: Entry, infos: list[dict[str, int | float | str]]) -> Entry:
        task, run = key
        expected = self.expected(key) if self.expected else len(infos)
        return {
            "_ng_task_index": task,
            **statistics,
            **({} if run < 0 else {"agent_ref": {"name": self.labels[run]}}),
            "sample": self.sample(key),
            "num_rollouts": len(infos),
            "expected_num_rollouts": expected,
            "missing_num_rollouts": max(expected - len(infos), 0),
            "reward_profile_completion_pct": 100.0 * len(infos) / expected if expected else 0.0,
            "rollout_infos": infos,
        }

    def _statistics(self, rows: Integers, groups: Integers, number_of_groups: int) -> list[Entry]:
        """mean, max, min, median and std of every column for every group, statistic-major."""
        sizes = np.bincount(groups, minlength=number_of_groups)
        columns = {
            name: statistics_by_group(np.frombuffer(column.values)[rows], groups, number_of_groups)
            for name, column in self.table.columns.items()
        }
        deviations = _deviations(columns, sizes)
        entries: list[Entry] = [{} for _ in range(number_of_groups)]
        for stat in _GROUP_STATS:
            for name, column in columns.items():
                numbers = deviations[name] if stat is Stat.STD else getattr(column, stat.value)
                _set_finite(entries, f"{stat.prefix}{name}", numbers)
        return entries

    def _repeats_of(self, rank: int, label: str) -> list[Entry]:
        tasks, runs, rollouts = self._identity()
        rows = np.flatnonzero(self._label_ranks()[runs] == rank)
        indices, groups = np.unique(rollouts[rows], return_inverse=True)
        if len(indices) < 2:
            return []
        distinct_tasks, task_ranks = np.unique(tasks[rows], return_inverse=True)
        task_count = len(distinct_tasks)
        pairs = np.sort(groups * task_count + task_ranks)
        distinct = pairs[np.diff(pairs, prepend=-1) != 0]
        present = np.bincount(distinct // task_count, minlength=len(indices)).tolist()
        entries: list[Entry] = [
            {
                "agent_ref": {"name": label},
                "_ng_rollout_index": index,
                "sample_count": count,
                "missing_count": task_count - count,
            }
            for index, count in zip(indices.tolist(), present, strict=True)
        ]
        for name in sorted(self.table.columns):
            values = np.frombuffer(self.table.columns[name].values)[rows]
            _add_repeat_statistics(entries, name, statistics_by_group(values, groups, len(indices)))
        return entries


def across_repeats(entries: Iterable[Entry]) -> Entry:
    """How each primary metric of one agent's repeat entries varies between them."""
    values: dict[str, list[float]] = {}
    for entry in entries:
        for name, value in entry.items():
            if isinstance(value, float) and is_primary_metric(name):
                values.setdefault(name, []).append(value)
    return {key: value for name, numbers in values.items() for key, value in _spread(name, numbers).items()}


def _spread(name: str, numbers: list[float]) -> Entry:
    stats = statistics_by_group(np.array(numbers), np.zeros(len(numbers), dtype=np.int64), 1)
    deviation = float(stats.std[0]) if len(numbers) > 1 else 0.0
    error = deviation / math.sqrt(len(numbers))
    spread = {
        Stat.MEAN: float(stats.mean[0]),
        Stat.MEDIAN: float(stats.median[0]),
        Stat.STD: deviation,
        Stat.MIN: float(stats.min[0]),
        Stat.MAX: float(stats.max[0]),
        Stat.SE: error,
    }
    if len(numbers) > 1:
        spread[Stat.CI_LOW_95], spread[Stat.CI_HIGH_95] = confidence_interval(spread[Stat.MEAN], error, len(numbers))
    return {f"{stat.across_repeats_prefix}{name}": value for stat, value in spread.items()}


def _add_repeat_statistics(entries: list[Entry], name: str, column: GroupStatistics) -> None:
    with np.errstate(invalid="ignore"):
        deviation = np.where(column.counts > 1, column.std, 0.0)
        error = deviation / np.sqrt(np.maximum(column.counts, 1))
    quantities = {
        Stat.MEAN: column.mean,
        Stat.MEDIAN: column.median,
        Stat.STD: np.where(column.counts > 0, deviation, np.nan),
        Stat.SEM: np.where(column.counts > 0, error, np.nan),
        Stat.MIN: column.min,
        Stat.MAX: column.max,
        Stat.P25: column.quantile(0.25),
        Stat.P75: column.quantile(0.75),
    }
    for stat, numbers in quantities.items():
        _set_finite(entries, f"{stat.prefix}{name}", numbers)
    for entry, mean, sem, count in zip(
        entries, column.mean.tolist(), error.tolist(), column.counts.tolist(), strict=True
    ):
        if count > 1:
            low, high = confidence_interval(mean, sem, count)
            entry |= {f"{Stat.CI_LOW_95.prefix}{name}": low, f"{Stat.CI_HIGH_95.prefix}{name}": high}


def _deviations(columns: dict[str, GroupStatistics], sizes: Integers) -> dict[str, Floats]:
    """Sample deviations; 0 for complete columns of a group in which no column has one (a group of one rollout)."""
    undefined = np.ones(len(sizes), dtype=bool)
    for column in columns.values():
        undefined &= np.isnan(column.std)
    return {name: np.where(undefined & (column.counts == sizes), 0.0, column.std) for name, column in columns.items()}


def _set_finite(entries: list[Entry], name: str, numbers: Floats) -> None:
    for entry, number in zip(entries, numbers.tolist(), strict=True):
        if math.isfinite(number):
            entry[name] = number


def _group_starts(tasks: Integers, runs: Integers) -> list[int]:
    """Where each (task, run) begins in rows sorted by it."""
    changes = (np.diff(tasks) != 0) | (np.diff(runs) != 0)
    return [0, *(np.flatnonzero(changes) + 1).tolist()] if len(tasks) else []


def _whole_groups(order: Integers, tasks: Integers, runs: Integers) -> Iterator[Integers]:
    """`order` in blocks that end where a group ends, so that memory for entries stays bounded."""
    begin, ends = 0, [*_group_starts(tasks[order], runs[order])[1:], len(order)]
    for end in ends:
        if end - begin >= _ROWS_PER_BLOCK or end == len(order):
            if end > begin:
                yield order[begin:end]
            begin = end
