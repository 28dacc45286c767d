"""Which tasks the parts of one evaluation hold: parts cut from one file number theirs alike, though they are others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
)
from nemo_gym.rollouts.keys import NG_SHARD_KEY
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.records import index_in
from nemo_gym.rollouts.rows import Row, objects
from nemo_gym.rollouts.tail import end_of_whole_lines

_NOT_THE_TASK = frozenset(
    {AGENT_REF_KEY_NAME, TASK_SOURCE_KEY_NAME, SKILLS_REF_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME}
)


@dataclass
class TaskNumbering:
    """New numbers for the tasks of those sets (by their place) whose own mean another task in an earlier set."""

    sets: Sequence[ResultSet] = ()
    numbers: dict[int, dict[int, int]] = field(default_factory=dict)
    is_certain: bool = True
    """Whether every task could be told by what it is."""

    def applied(self, place: int, record: Row) -> Row:
        """The record with its task's number, and with where that comes from if it isn't its own."""
        task = index_in(record, TASK_INDEX_KEY_NAME)
        number = self.numbers.get(place, {}).get(-1 if task is None else task, task)
        if number == task:
            return record
        origin = {"file": self.sets[place].output.name, "task_index": task}
        return {**record, TASK_INDEX_KEY_NAME: number, NG_SHARD_KEY: origin}

    def notices(self) -> list[str]:
        """A sentence for each set with new numbers."""
        return [
            f"{self.sets[place].output} numbers its tasks as another file does, but they are others: {len(numbers)} "
            f"are numbered anew, up to {max(numbers.values())} (`{NG_SHARD_KEY}` of a record has its own number)."
            for place, numbers in self.numbers.items()
        ]


def numbering_of(sets: Sequence[ResultSet]) -> TaskNumbering:
    """Numbers under which equal tasks are one and different ones are not.

    A task is what its row in the plan says, of whatever agent and repeat; where a set has no plan, the prompt of its
    records. Sets whose numbers clash with no earlier one's keep theirs.
    """
    by_plan = all(results.materialized.exists() for results in sets)
    tasks = [_planned(results) if by_plan else _recorded(results) for results in sets]
    numbering = TaskNumbering(sets, is_certain=all(None not in found.values() for found in tasks))
    taken: dict[int, bytes | None] = {}
    known: dict[bytes, list[int]] = {}
    free = 1 + max((task for found in tasks for task in found), default=-1)
    for place, found in enumerate(tasks):
        if any(None not in (task, taken.get(number)) and task != taken[number] for number, task in found.items()):
            numbering.numbers[place], free = _renumbered(found, known, free)
        numbers = numbering.numbers.get(place, {})
        for own, task in found.items():
            number = numbers.get(own, own)
            if number not in taken and task is not None:
                known.setdefault(task, []).append(number)
            taken.setdefault(number, task)
    return numbering


def _renumbered(
    tasks: Mapping[int, bytes | None], known: Mapping[bytes, Sequence[int]], free: int
) -> tuple[dict[int, int], int]:
    """The numbers of known tasks, and free ones for the others; the first number still free afterwards."""
    numbers: dict[int, int] = {}
    seen: Counter[bytes] = Counter()
    for own, task in sorted(tasks.items()):
        same = () if task is None else known.get(task, ())
        nth = 0 if task is None else seen[task]
        if task is not None:
            seen[task] += 1
        if nth < len(same):
            numbers[own] = same[nth]
        else:
            numbers[own], free = free, free + 1
    return numbers, free


def _planned(results: ResultSet) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for row in objects(results.materialized):
        task = index_in(row, TASK_INDEX_KEY_NAME)
        if task is not None and task not in found:
            found[task] = _digest(
                {
                    name: value
                    for name, value in row.items()
                    if name not in _NOT_THE_TASK and not name.startswith("_ng_")
                }
                | {RESPONSES_CREATE_PARAMS_KEY_NAME: _prompt(row)}
            )
    return found


def _recorded(results: ResultSet) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for record in objects(results.output, end_of_whole_lines(results.output)):
        task = index_in(record, TASK_INDEX_KEY_NAME)
        if task is not None and found.get(task) is None:
            prompt = _prompt(record)
            found[task] = None if prompt is None else _digest(prompt)
    return found


def _prompt(fields: Mapping[str, Any]) -> Any:
    params = fields.get(RESPONSES_CREATE_PARAMS_KEY_NAME)
    return params.get("input") if isinstance(params, Mapping) else None


def _digest(value: Any) -> bytes:
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
