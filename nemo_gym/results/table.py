"""The numbers of many rollouts, column by column: nine bytes for each number however large the records were."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from nemo_gym.results.records import Record, as_number, usage_of
from nemo_gym.results.shapes import INTEGER, USAGE, Shape, Shapes

_EXACT_IN_FLOAT = 2**53
_ROWS_PER_FLUSH = 1 << 12


class Column:
    """One number per row, NaN where a row has none.

    `kinds` says of each whether it is PRESENT, was an INTEGER, came from USAGE. Integers that a float can't hold
    exactly are in `large_integers` too, by row.
    """

    __slots__ = ("kinds", "large_integers", "name", "values")

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = array("d")
        self.kinds = bytearray()
        self.large_integers: dict[int, int] = {}

    def put(self, rows: Sequence[int], values: Sequence[int | float], kind: int) -> None:
        """Give ascending rows their values; what is no measurement is left out."""
        begin, count = rows[0], len(rows)
        is_block = rows[-1] - begin == count - 1 and len(self.values) <= begin
        if is_block and _are_plain(values, kind):
            self.pad(begin)
            self.values.extend(array("d", values))
            self.kinds.extend(bytes((kind,)) * count)
            return
        self.pad(rows[-1] + 1)
        for row, value in zip(rows, values, strict=True):
            if (number := as_number(self.name, value)) is not None:
                self._set(row, number, kind)

    def pad(self, rows: int) -> None:
        if (missing := rows - len(self.values)) > 0:
            self.values.extend(repeat(math.nan, missing))
            self.kinds.extend(bytes(missing))

    def _set(self, row: int, number: int | float, kind: int) -> None:
        self.values[row], self.kinds[row] = number, kind
        self.large_integers.pop(row, None)
        if isinstance(number, int) and not -_EXACT_IN_FLOAT <= number <= _EXACT_IN_FLOAT:
            self.large_integers[row] = number


def _are_plain(values: Sequence[int | float], kind: int) -> bool:
    """Whether a float holds each of them exactly."""
    if kind & INTEGER:
        return min(values) >= -_EXACT_IN_FLOAT and max(values) <= _EXACT_IN_FLOAT
    return all(map(math.isfinite, values))


class RolloutTable:
    """Rollouts as rows: whose they are, and every top-level number of their records merged with `response.usage`,
    except those named in `ignore`."""

    def __init__(self, ignore: frozenset[str] = frozenset()) -> None:
        self.tasks = array("q")
        self.rollouts = array("q")
        self.runs = array("q")
        self.columns: dict[str, Column] = {}
        self._shapes = Shapes(ignore)
        self._looks: list[Any] = []
        self._shape = Shape([], tuple, tuple)
        self._flushed = 0

    def __len__(self) -> int:
        return len(self.tasks)

    def add(self, task: int, rollout: int, record: Record) -> None:
        """Append one rollout. Where a record and its usage both have a number, the usage's counts."""
        row, usage = len(self.tasks), usage_of(record)
        looks = [*record, *map(type, record.values()), *usage, *map(type, usage.values())]
        if looks != self._looks:
            self._looks, self._shape = looks, self._shape_of(tuple(looks), record, usage)
        shape = self._shape
        shape.rows.append(row)
        shape.values += shape.own(record)
        shape.values += shape.of_usage(usage)
        self.tasks.append(task)
        self.rollouts.append(rollout)
        if row - self._flushed >= _ROWS_PER_FLUSH:
            self._flush()

    def seal(self) -> None:
        """Fill the columns up to the last row. Call it after the last `add`, before reading them."""
        self._flush()
        for column in self.columns.values():
            column.pad(len(self))
        if len(self.runs) != len(self):
            self.runs = array("q", bytes(self.runs.itemsize * len(self)))

    def _shape_of(self, key: tuple[Any, ...], record: Record, usage: Record) -> Shape:
        if key in self._shapes:
            return self._shapes[key]
        if self._shapes.are_many:
            self._flush()
            self._shapes.clear()
        shape = self._shapes.learn(key, record, usage)
        of_usage = {name for name, kind in shape.fields if kind & USAGE}
        for name, kind in shape.fields:
            if name not in self.columns and (kind & USAGE or name not in of_usage):
                self.columns[name] = Column(name)
        return shape

    def _flush(self) -> None:
        """Move what was taken since the last time into the columns."""
        for shape in self._shapes.used():
            for place, (name, kind) in enumerate(shape.fields):
                self.columns[name].put(shape.rows, shape.values[place :: len(shape.fields)], kind)
            shape.clear()
        self._flushed = len(self.tasks)
