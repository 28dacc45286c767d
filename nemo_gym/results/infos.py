"""The short form of single rollouts that a task's entry lists."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from nemo_gym.results.records import REWARD, ROLLOUT_INDEX, TASK_INDEX, Record
from nemo_gym.results.shapes import INTEGER, USAGE
from nemo_gym.results.table import Column, RolloutTable

RolloutInfo = dict[str, int | float | str]
Numbers = list[int | float | None]


def rollout_info(task: int, rollout: int, record: Record) -> RolloutInfo:
    table = RolloutTable()
    table.add(task, rollout, record)
    table.seal()
    return rollout_infos(table, np.zeros(1, dtype=np.int64))[0]


def rollout_infos(table: RolloutTable, rows: NDArray[np.int64]) -> list[RolloutInfo]:
    """For each of `rows` its identity, reward, numbers of its usage, and other numbers."""
    infos: list[RolloutInfo] = [
        {"rollout_id": f"{task}:{rollout}", TASK_INDEX: task, ROLLOUT_INDEX: rollout}
        for task, rollout in zip(_at(table.tasks, rows), _at(table.rollouts, rows), strict=True)
    ]
    others: list[tuple[str, Numbers]] = []
    for name, column in sorted(table.columns.items(), key=lambda item: item[0] != REWARD):
        numbers, of_usage = _numbers_at(column, rows), _kinds(column)[rows] & USAGE
        if name == REWARD or of_usage.all():
            _add(infos, name, numbers)
            continue
        if of_usage.any():
            _add(infos, name, [n if usage else None for n, usage in zip(numbers, of_usage.tolist(), strict=True)])
        others.append((name, numbers))
    for name, numbers in others:
        _add(infos, name, numbers)
    return infos


def _at(ids: array[int], rows: NDArray[np.int64]) -> list[int]:
    return np.frombuffer(ids, dtype=np.int64)[rows].tolist()  # type: ignore[no-any-return]


def _numbers_at(column: Column, rows: NDArray[np.int64]) -> Numbers:
    """The numbers of `rows` as they were written, integers as integers; None where there is none."""
    values, kinds = np.frombuffer(column.values)[rows], _kinds(column)[rows]
    integers = (kinds & INTEGER) > 0
    if integers.all() and not column.large_integers:
        return values.astype(np.int64).tolist()  # type: ignore[no-any-return]
    numbers: Numbers = values.tolist()
    for place in np.flatnonzero(integers).tolist():
        numbers[place] = column.large_integers.get(int(rows[place]), int(values[place]))
    for place in np.flatnonzero(kinds == 0).tolist():
        numbers[place] = None
    return numbers


def _kinds(column: Column) -> NDArray[np.uint8]:
    return np.frombuffer(column.kinds, dtype=np.uint8)


def _add(infos: list[RolloutInfo], name: str, numbers: Numbers) -> None:
    for info, number in zip(infos, numbers, strict=True):
        if number is not None:
            info[name] = number
