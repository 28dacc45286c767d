"""Rows and their rollouts, matched by (task index, rollout index), in a few bytes per pair."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nemo_gym.results.alignment import duplicate_error, require_matching
from nemo_gym.results.coverage import Coverage, coverage
from nemo_gym.results.labels import label_runs, rollout_run_key
from nemo_gym.results.profiling import GroupKey, Profile
from nemo_gym.results.records import ENVIRONMENT_SERVER, Record, RolloutKey, agent_name, is_masked
from nemo_gym.results.statistics import Integers
from nemo_gym.results.table import RolloutTable

UNKNOWN_RUN = "unknown"
Booleans = NDArray[np.bool_]


class Runs:
    """Runs numbered in first-seen order, with the agents seen in each."""

    def __init__(self) -> None:
        self.agents: dict[str, set[str]] = {}
        self._numbers: dict[str, int] = {}
        self._known: dict[tuple[str | None, str | None], int] = {}

    def number_of(self, record: Record) -> int:
        agent, stamp = agent_name(record), record.get(ENVIRONMENT_SERVER)
        seen = (stamp if isinstance(stamp, str) else None, agent)
        if (number := self._known.get(seen)) is None:
            key = rollout_run_key(record)
            number = self._known[seen] = self.add(UNKNOWN_RUN if key is None else key, agent)
        return number

    def add(self, key: str, agent: str | None) -> int:
        agents = self.agents.setdefault(key, set())
        if agent:
            agents.add(agent)
        return self._numbers.setdefault(key, len(self._numbers))

    def labels(self) -> list[str]:
        by_run = label_runs(self.agents)
        return [by_run[run] for run in self._numbers]


@dataclass
class Keys:
    """The identity of a sequence of rows or of results."""

    tasks: array[int] = field(default_factory=lambda: array("q"))
    rollouts: array[int] = field(default_factory=lambda: array("q"))

    def extend(self, keys: Sequence[RolloutKey]) -> None:
        self.tasks.extend([task for task, _ in keys])
        self.rollouts.extend([rollout for _, rollout in keys])

    def at(self, positions: Integers) -> list[RolloutKey]:
        return [(self.tasks[position], self.rollouts[position]) for position in positions.tolist()]


class Pairing:
    """Collects rows, then results, and matches them.

    The run of a result is its row's: stamps put on at dispatch must not split a run that the rows know by its agent.
    The numbers of measured results go into a table; masked ones are known by their key alone.
    """

    def __init__(self) -> None:
        self.rows, self.results = Keys(), Keys()
        self.row_runs, self.runs = array("q"), Runs()
        self.masked = bytearray()
        self.table = RolloutTable()

    def add_rows(self, keys: Sequence[RolloutKey], rows: Sequence[Record]) -> None:
        """Take in rows with their keys."""
        self.rows.extend(keys)
        self.row_runs.extend(map(self.runs.number_of, rows))

    def add_results(self, keys: Sequence[RolloutKey], results: Sequence[Record]) -> None:
        """Take in results with their keys, once all rows are known."""
        masked = [is_masked(result) for result in results]
        self.results.extend(keys)
        self.masked.extend(masked)
        add = self.table.add
        for (task, rollout), result, is_left_out in zip(keys, results, masked, strict=True):
            if not is_left_out:
                add(task, rollout, result)

    def paired(self) -> PairedRollouts:
        self.table.seal()
        return PairedRollouts(self)


class PairedRollouts:
    """What a `Pairing` found. `row_of_result` is -1 for a result without row; `completed` says which rows have one."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.tasks, self.runs = _integers(pairing.rows.tasks), _integers(pairing.row_runs)
        self.measured: Booleans = np.frombuffer(pairing.masked, dtype=np.uint8) == 0
        self._row_ids, self._result_ids = _joint_ids(pairing.rows, pairing.results)
        self.row_of_result = _positions(self._row_ids, self._result_ids)
        self.completed: Booleans = np.isin(self._row_ids, self._result_ids)

    def require_match(self, allow_partial_rollouts: bool) -> None:
        """MismatchedRolloutsError for a key that occurs twice, a result without row, and a row without result unless
        `allow_partial_rollouts`."""
        rows, results = self.pairing.rows, self.pairing.results
        _refuse_duplicates(rows, self._row_ids, "input rows")
        _refuse_duplicates(results, self._result_ids, "rollouts")
        extra, missing = np.flatnonzero(self.row_of_result < 0), np.flatnonzero(~self.completed)
        require_matching(results.at(extra), rows.at(missing), allow_partial_rollouts)

    def runs_of_results(self) -> Integers:
        return self.runs[self.row_of_result]

    def profile(self, sample: Callable[[int], Any]) -> Profile:
        """Profile of the measured results, all of which must have a row. `sample` gives what a group shows for the row
        at a position."""
        table = self.pairing.table
        table.runs = array("q", self.runs_of_results()[self.measured].tobytes())
        kept = np.ones(len(self.tasks), dtype=bool)
        kept[self.row_of_result[~self.measured]] = False
        groups = RowGroups(self.tasks[kept], self.runs[kept], np.flatnonzero(kept))
        return Profile(
            table,
            self.pairing.runs.labels(),
            by_run=_tasks_have_several_runs(self.tasks, self.runs),
            expected=groups.size,
            sample=lambda key: sample(groups.first(key)),
        )

    def coverage_by_label(self) -> dict[str, Coverage]:
        """The coverage block of each label of which a rollout was masked."""
        tasks, runs = _integers(self.pairing.results.tasks), self.runs_of_results()
        blocks = {}
        for run, label in enumerate(self.pairing.runs.labels()):
            own = runs == run
            blocks[label] = coverage(tasks[own & self.measured].tolist(), tasks[own & ~self.measured].tolist())
        return {label: block for label, block in blocks.items() if block}

    def completion(self) -> dict[str, int | float]:
        expected, completed = len(self.tasks), int(self.completed.sum())
        extra = int((self.row_of_result < 0).sum())
        inputs = _ids_of_pairs(self.tasks, self.runs)
        planned = np.bincount(inputs)
        done = np.bincount(inputs, weights=self.completed)
        return {
            "expected_rollout_rows": expected,
            "completed_rollout_rows": completed,
            "missing_rollout_rows": expected - completed,
            "extra_rollout_rows": extra,
            "reward_profile_completion_pct": 100.0 * completed / expected if expected else 0.0,
            "total_input_rows": len(planned),
            "complete_input_rows": int((done == planned).sum()),
            "partial_input_rows": int(((done > 0) & (done < planned)).sum()),
            "missing_input_rows": int((done == 0).sum()),
        }


class RowGroups:
    """Rows by (task, run), and by task alone where the run is given as -1."""

    def __init__(self, tasks: Integers, runs: Integers, positions: Integers) -> None:
        self._order = np.lexsort((positions, runs, tasks))
        self._tasks, self._runs = tasks[self._order], runs[self._order]
        self._positions = positions[self._order]

    def size(self, key: GroupKey) -> int:
        start, end = self._span(key)
        return end - start

    def first(self, key: GroupKey) -> int:
        """The position of the group's first row."""
        start, end = self._span(key)
        return int(self._positions[start:end].min())

    def _span(self, key: GroupKey) -> tuple[int, int]:
        task, run = key
        start, end = (int(np.searchsorted(self._tasks, task, side)) for side in ("left", "right"))
        if run < 0:
            return start, end
        within = self._runs[start:end]
        return start + int(np.searchsorted(within, run, "left")), start + int(np.searchsorted(within, run, "right"))


def _integers(values: array[int]) -> Integers:
    return np.frombuffer(values, dtype=np.int64)


def _ids_of_pairs(first: Integers, second: Integers) -> Integers:
    """One integer from 0 per pair, ascending by first, then second; equal where pairs are equal."""
    distinct, ranks = np.unique(second, return_inverse=True)
    codes = np.unique(first, return_inverse=True)[1] * len(distinct) + ranks
    ids: Integers = np.unique(codes, return_inverse=True)[1]
    return ids


def _joint_ids(rows: Keys, results: Keys) -> tuple[Integers, Integers]:
    """One integer per key, equal where keys are equal."""
    tasks = np.concatenate((_integers(rows.tasks), _integers(results.tasks)))
    rollouts = np.concatenate((_integers(rows.rollouts), _integers(results.rollouts)))
    distinct_rollouts, ranks = np.unique(rollouts, return_inverse=True)
    ids = np.unique(tasks, return_inverse=True)[1] * len(distinct_rollouts) + ranks
    return ids[: len(rows.tasks)], ids[len(rows.tasks) :]


def _refuse_duplicates(keys: Keys, ids: Integers, what: str) -> None:
    order = np.argsort(ids, kind="stable")
    again = np.sort(order[1:][np.diff(ids[order]) == 0])
    if len(again):
        raise duplicate_error(keys.at(again[:1])[0], what)


def _positions(row_ids: Integers, result_ids: Integers) -> Integers:
    """For every result the position of its row, -1 where it has none."""
    if not len(row_ids):
        return np.full(len(result_ids), -1)
    order = np.argsort(row_ids)
    found = order[np.minimum(np.searchsorted(row_ids[order], result_ids), len(row_ids) - 1)]
    return np.where(row_ids[found] == result_ids, found, -1)


def _tasks_have_several_runs(tasks: Integers, runs: Integers) -> bool:
    if not len(runs) or bool((runs == runs[0]).all()):
        return False
    pairs = np.unique(np.stack((tasks, runs)), axis=1)
    return bool((np.diff(pairs[0]) == 0).any())
