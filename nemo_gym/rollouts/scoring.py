"""The records a score is made of: what was measured, and the failures and gaps that are asked to count as zero."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.config.notices import warn
from nemo_gym.rollouts.coverage import BoundaryOf, Coverage, Failure
from nemo_gym.rollouts.failures import failure_class_of, rule_for
from nemo_gym.rollouts.keys import MASK_SAMPLE_KEY, NG_ENVIRONMENT_SERVER_KEY, NG_FAILURE_PREFIX, NG_SHARD_KEY
from nemo_gym.rollouts.keyset import RolloutKey, RolloutKeys
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.records import key_of
from nemo_gym.rollouts.rows import Row, object_at, objects_at
from nemo_gym.rollouts.shard_tasks import TaskNumbering
from nemo_gym.rollouts.tail import end_of_whole_lines

GroupOf = Callable[[Mapping[str, Any]], str | None]

_NEVER_LENT = frozenset({RESPONSES_CREATE_PARAMS_KEY_NAME, RESPONSE_KEY_NAME})


@dataclass(frozen=True)
class ZeroOptions:
    """What counts with reward 0 although nothing was measured."""

    failure_classes: frozenset[str] = frozenset()
    missing: bool = False


@dataclass
class ScoreCoverage:
    """How much of a plan the score is made of."""

    expected: int = 0
    measured: int = 0
    imputed: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def scored(self) -> int:
        return self.measured + self.imputed

    def report(self) -> str | None:
        """Two lines when rollouts are missing from the score, or when some were counted as zero; else None."""
        missing = self.expected - self.scored
        lines = []
        if missing > 0:
            lines.append(f"Rollouts missing from the score: {missing} of {self.expected}{_kinds(self.failures)}")
            lines.append(f"Metrics cover: {self.scored} of {self.expected}")
        if self.imputed:
            lines.append(f"Counted with reward 0 although not measured: {self.imputed}")
        return "\n".join(lines) or None


def _kinds(failures: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name}: {count}' for name, count in sorted(failures.items()))})" if failures else ""


class ScoredRecords:
    """Iterates the records of one or several result sets in (task, repeat) order, reading each when it is due.

    `group_of` gives the server whose metrics a record belongs to, `boundary_of` where a failure happened. A torn last
    line is left out, with a warning. `numbering` gives tasks other numbers than their sets do.
    """

    def __init__(
        self,
        sets: Sequence[ResultSet],
        zeros: ZeroOptions,
        group_of: GroupOf,
        boundary_of: BoundaryOf | None = None,
        numbering: TaskNumbering | None = None,
    ) -> None:
        self._numbering = TaskNumbering() if numbering is None else numbering
        self._group_of = group_of
        self._boundary_of = boundary_of or (lambda record: rule_for(failure_class_of(record) or "").boundary)
        self._paths = [results.output for results in sets]
        self._ends = {path: _end_of(path) for results in sets for path in (results.output, results.failures)}
        self._tasks, self._repeats, self._files, self._offsets = (array("q") for _ in range(4))
        self._unkeyed: list[tuple[int, int]] = []
        self._added: list[Row] = []
        self.coverage = ScoreCoverage()
        self.books_of_sets: list[Coverage] = []
        self.duplicates = Duplicates(sets)
        names: dict[str | None, set[str]] = {}
        for index, results in enumerate(sets):
            expected, before = self.coverage.expected, self.coverage.measured
            needs_names = bool(zeros.failure_classes or zeros.missing)
            measured = self._index(
                index, results.output, names if needs_names else None, has_plan=results.materialized.exists()
            )
            failures = self._add_unmeasured(index, results, measured, zeros, before)
            asked = self.coverage.expected - expected
            self.books_of_sets.append(Coverage(asked, self.coverage.measured - before, failures))
        self._lend_dataset_fields(sets, names)
        self.coverage.imputed = len(self._added)

    @property
    def books(self) -> Coverage:
        """What became of the rollouts of all sets."""
        return sum(self.books_of_sets, Coverage())

    @property
    def without_indices(self) -> int:
        """Records that name no task or no repeat."""
        return len(self._unkeyed)

    def __len__(self) -> int:
        return len(self._tasks) + len(self._unkeyed) + len(self._added)

    def __iter__(self) -> Iterator[Row]:
        files = [path.open("rb") for path in self._paths]
        try:
            for file, offset in self._order():
                if file < 0:
                    yield self._added[offset]
                    continue
                yield self._numbering.applied(file, object_at(files[file], offset, self._paths[file]))
        finally:
            for opened in files:
                opened.close()

    def _index(self, file: int, path: Path, names: dict[str | None, set[str]] | None, *, has_plan: bool) -> RolloutKeys:
        measured = RolloutKeys()
        for offset, record in self._read(file, path):
            key = key_of(record)
            if names is not None:
                names.setdefault(self._group_of(record), set()).update(record)
            if key is None:
                self._unkeyed.append((file, offset))
                self.coverage.measured += not has_plan  # which rollout of the plan could it be?
                continue
            self._append(key, file, offset)
            is_new = measured.add(key)
            self.coverage.measured += is_new
            if self.duplicates.compares_files:
                self.duplicates.note(self._group_of(record), key, file)
            elif not is_new:
                self.duplicates.note_within(key, file)
        return measured

    def _read(self, file: int, path: Path) -> Iterator[tuple[int, Row]]:
        lines = objects_at(path, self._ends.get(path))
        if file not in self._numbering.numbers:
            return lines
        return ((offset, self._numbering.applied(file, row)) for offset, row in lines)

    def _append(self, key: RolloutKey, file: int, offset: int) -> None:
        for column, value in zip(
            (self._tasks, self._repeats, self._files, self._offsets), (*key, file, offset), strict=True
        ):
            column.append(value)

    def _add_unmeasured(
        self, index: int, results: ResultSet, measured: RolloutKeys, zeros: ZeroOptions, before: int
    ) -> dict[Failure, int]:
        """What a set lacks; `before` it, so many rollouts were measured. Returns its failures."""
        last_failures = self._last_failures(index, results.failures, measured)
        counted = [offset for (_, name), offset in last_failures.values() if name in zeros.failure_classes]
        failures: dict[Failure, int] = {}
        for failure, _ in last_failures.values():
            failures[failure] = failures.get(failure, 0) + 1
            if failure[1] not in zeros.failure_classes:
                self.coverage.failures[failure[1]] = self.coverage.failures.get(failure[1], 0) + 1
        if counted:
            with results.failures.open("rb") as file:
                found = (object_at(file, offset, results.failures) for offset in counted)
                self._added += [_zeroed(self._numbering.applied(index, record)) for record in found]
        if not results.materialized.exists():
            if zeros.missing:
                warn(f"{results.materialized} is missing, so rollouts without a record can't be counted as zero.")
            self.coverage.expected += self.coverage.measured - before + len(last_failures)
            return failures
        for _, row in self._read(index, results.materialized):
            self.coverage.expected += 1
            key = key_of(row)
            if zeros.missing and key is not None and key not in measured and key not in last_failures:
                self._add_missing(row)
        return failures

    def _last_failures(self, index: int, path: Path, measured: RolloutKeys) -> dict[RolloutKey, tuple[Failure, int]]:
        """The last failure of every rollout that was never measured, and where its record begins."""
        last: dict[RolloutKey, tuple[Failure, int]] = {}
        for offset, record in self._read(index, path):
            key = key_of(record)
            if key is not None and key not in measured:
                last[key] = (self._boundary_of(record), failure_class_of(record) or "unknown"), offset
        return last

    def _add_missing(self, row: Row) -> None:
        if self._group_of(row) is None:
            warn(f"A missing rollout can't be counted as zero: it names no agent ({key_of(row)}).")
            return
        kept = (
            TASK_INDEX_KEY_NAME,
            ROLLOUT_INDEX_KEY_NAME,
            AGENT_REF_KEY_NAME,
            NG_ENVIRONMENT_SERVER_KEY,
            NG_SHARD_KEY,
        )
        self._added.append({**{name: row[name] for name in kept if name in row}, REWARD_KEY_NAME: 0.0})

    def _lend_dataset_fields(self, sets: Sequence[ResultSet], names: Mapping[str | None, set[str]]) -> None:
        """Give added records the fields of their task that measured records of the same server carry too."""
        waiting: dict[RolloutKey, list[Row]] = {}
        for record in self._added:
            if (key := key_of(record)) is not None:
                waiting.setdefault(key, []).append(record)
        for index, results in enumerate(sets if waiting else ()):
            for _, row in self._read(index, results.materialized):
                for record in waiting.get(key_of(row) or (-1, -1), ()):
                    _lend(record, row, names.get(self._group_of(record), set()))

    def _order(self) -> Iterator[tuple[int, int]]:
        import numpy as np

        added = [key_of(record) or (0, 0) for record in self._added]
        tasks = np.concatenate([np.frombuffer(self._tasks, dtype=np.int64), np.array([t for t, _ in added], np.int64)])
        repeats = np.concatenate(
            [np.frombuffer(self._repeats, dtype=np.int64), np.array([r for _, r in added], np.int64)]
        )
        known = len(self._tasks)
        for position in np.lexsort((repeats, tasks)):
            if position < known:
                yield self._files[position], self._offsets[position]
            else:
                yield -1, int(position) - known
        yield from self._unkeyed


def _end_of(path: Path) -> int | None:
    end = end_of_whole_lines(path)
    if end is not None:
        warn(f"The last line of {path} is torn and left out: its run was cut off, or goes on still.")
    return end


class Duplicates:
    """Rollouts that are recorded more than once: in one file, or (for the same server) in several."""

    def __init__(self, sets: Sequence[ResultSet]) -> None:
        self.within = self.across = 0
        self.compares_files = len(sets) > 1
        self._paths = [results.output for results in sets]
        self._seen: dict[str | None, dict[int, RolloutKeys]] = {}
        self._example = ""

    def note(self, group: str | None, key: RolloutKey, file: int) -> None:
        """Take a record in; call it for all of a file before those of the next."""
        by_file = self._seen.setdefault(group, {})
        if not by_file.setdefault(file, RolloutKeys()).add(key):
            self.note_within(key, file)
            return
        other = next((earlier for earlier, keys in by_file.items() if earlier != file and key in keys), None)
        if other is not None:
            self.across += 1
            told = f"task {key[0]}, repeat {key[1]} is in {self._paths[other]} and {self._paths[file]}"
            self._example = self._example if self.across > 1 else told

    def note_within(self, key: RolloutKey, file: int) -> None:
        self.within += 1
        if not self._example:
            self._example = f"task {key[0]}, repeat {key[1]} is in {self._paths[file]} twice"

    def __str__(self) -> str:
        count = self.within + self.across
        return f"{count} {'record repeats' if count == 1 else 'records repeat'} a rollout: {self._example}"


def _zeroed(record: Row) -> Row:
    dropped = ("failure_kind", "failure_reason")
    kept = {key: value for key, value in record.items() if not key.startswith(NG_FAILURE_PREFIX) and key not in dropped}
    reward = kept.get(REWARD_KEY_NAME)
    return {**kept, MASK_SAMPLE_KEY: False, REWARD_KEY_NAME: 0.0 if reward is None else reward}


def _lend(record: Row, row: Mapping[str, Any], carried: set[str]) -> None:
    for name, value in row.items():
        if name in carried and not name.startswith("_") and name not in _NEVER_LENT:
            record.setdefault(name, value)
