"""Reading a result set as somebody who doubts it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Key = tuple[int, int]
_COVERAGE = re.compile(r"^.*\b\d+ asked: .*$|^Metrics cover: .*$|^Rollouts missing .*$", re.MULTILINE)


def coverage_lines(text: str) -> list[str]:
    """What a run says about how much of it was measured."""
    return [line.strip() for line in _COVERAGE.findall(text)]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_bytes().split(b"\n"):
            if line:
                yield json.loads(line)


def _key(row: dict[str, Any], task: str, repeat: str) -> Key:
    return (row[task], row[repeat])


@dataclass
class Tries:
    """What was done for one rollout, by the journal and by the environment itself."""

    dispatched: int = 0
    retried: int = 0
    finished: int = 0
    measured: int = 0
    tool_calls: int = 0


@dataclass
class Books:
    """A result set as it lies on the disk."""

    output: Path
    effects: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    tries: dict[Key, Tries] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, output: Path, effects: Path) -> Books:
        """Raises ValueError for a line that is not JSON."""
        books = cls(output, effects)
        books.records = list(_rows(output))
        books.failures = list(_rows(output.with_name(f"{output.stem}_failures.jsonl")))
        books._read_journal(output.with_name(f"{output.name}.journal"))
        for effect in _rows(effects):
            if effect["what"] == "tool":
                books._tries((effect["task"], effect["repeat"])).tool_calls += 1
        return books

    @property
    def keys(self) -> Counter[Key]:
        """The multiset of rollouts measured."""
        return Counter(map(_record_key, self.records))

    def check(self) -> list[str]:
        """Everything that contradicts itself, or that was done twice."""
        return [*self.problems, *self._doubled(), *self._attempt_numbers(), *self._misled()]

    def _read_journal(self, path: Path) -> None:
        open_now: Counter[Key] = Counter()
        cut_off: Counter[Key] = Counter()
        for entry in _rows(path):
            kind = entry.get("kind")
            if kind == "run":
                cut_off, open_now = +open_now, Counter()
            if entry.get("task") is None:
                continue
            key = _key(entry, "task", "repeat")
            tries = self._tries(key)
            if kind == "attempt":
                open_now[key] += 1
                tries.dispatched += 1
                if tries.measured:
                    self.problems.append(f"{key} was dispatched after it was measured")
                if open_now[key] > 1:
                    self.problems.append(f"{key} was dispatched while it was in flight")
            elif kind == "retry":
                tries.retried += 1
            elif kind == "done":
                open_now[key] -= 1
                tries.finished += 1
                tries.measured += entry.get("outcome") == "measured"
                if open_now[key] < 0:  # a resumed run may note the outcome of a record that it found
                    open_now[key] = 0
                    if not cut_off.pop(key, 0):
                        self.problems.append(f"{key} has an outcome without a dispatch")

    def _tries(self, key: Key) -> Tries:
        return self.tries.setdefault(key, Tries())

    def _doubled(self) -> Iterator[str]:
        for key, count in self.keys.items():
            if count > 1:
                yield f"{key} is measured {count} times"
        for key, tries in self.tries.items():
            if tries.measured > 1:
                yield f"the journal has {tries.measured} measured outcomes of {key}"
            if tries.tool_calls > tries.dispatched + tries.retried:
                yield (
                    f"{key}: the tool ran {tries.tool_calls} times in {tries.dispatched} dispatches and "
                    f"{tries.retried} retries"
                )

    def _attempt_numbers(self) -> Iterator[str]:
        failed = Counter(map(_record_key, self.failures))
        for record in self.records:
            key, number = _record_key(record), record.get("_ng_attempt_index") or 0
            if number != failed[key]:
                yield f"{key} is numbered attempt {number} after {failed[key]} recorded failures"
        numbers = Counter((_record_key(row), row.get("_ng_attempt_index") or 0) for row in self.failures)
        for (key, number), count in numbers.items():
            if count > 1:
                yield f"attempt {number} of {key} failed {count} times"

    def _misled(self) -> Iterator[str]:
        for record in self.records:
            if record["reward"] != 1.0 or record["calls"] != 1:
                yield f"{_record_key(record)} has {record['calls']} calls in its session, reward {record['reward']}"


def _record_key(record: dict[str, Any]) -> Key:
    return _key(record, "_ng_task_index", "_ng_rollout_index")


def torn_files(output: Path) -> list[str]:
    """Files of the set that end in the middle of a line."""
    paths = (output, output.with_name(f"{output.stem}_failures.jsonl"), output.with_name(f"{output.name}.journal"))
    return [path.name for path in paths if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")]


def misplaced_offsets(output: Path) -> list[str]:
    """Outcomes of the journal whose offset is not where their record begins."""
    problems = []
    failures = output.with_name(f"{output.stem}_failures.jsonl")
    for entry in _rows(output.with_name(f"{output.name}.journal")):
        if entry.get("kind") != "done" or entry.get("offset") is None:
            continue
        file = output if entry["outcome"] == "measured" else failures
        line = file.read_bytes()[entry["offset"] :].split(b"\n", 1)[0]
        try:
            found = _record_key(json.loads(line))
        except (ValueError, KeyError):
            found = None
        if found != (entry["task"], entry["repeat"]):
            problems.append(
                f"the journal looks for {(entry['task'], entry['repeat'])} at {entry['offset']} of {file.name}"
            )
    return problems
