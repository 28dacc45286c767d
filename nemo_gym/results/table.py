"""The numbers of many rollouts, column by column: nine bytes for each number however large the records were."""

from __future__ import annotations

import math
from array import array
from itertools import repeat

from nemo_gym.results.records import Record, numbers_in, usage_of

PRESENT, INTEGER, USAGE = 1, 2, 4
_EXACT_IN_FLOAT = 2**53


class Column:
    """One number per row, NaN where a row has none.

    `kinds` says of each whether it is PRESENT, was an INTEGER, came from USAGE. Integers that a float can't hold
    exactly are in `large_integers` too, by row.
    """

    __slots__ = ("kinds", "large_integers", "values")

    def __init__(self) -> None:
        self.values = array("d")
        self.kinds = bytearray()
        self.large_integers: dict[int, int] = {}

    def put(self, row: int, value: int | float, origin: int) -> None:
        values = self.values
        if row != len(values):
            self.pad(row)
        values.append(value)
        if isinstance(value, float):
            self.kinds.append(PRESENT | origin)
            return
        self.kinds.append(PRESENT | INTEGER | origin)
        if not -_EXACT_IN_FLOAT <= value <= _EXACT_IN_FLOAT:
            self.large_integers[row] = value

    def pad(self, rows: int) -> None:
        missing = rows - len(self.values)
        self.values.extend(repeat(math.nan, missing))
        self.kinds.extend(bytes(missing))


class RolloutTable:
    """Rollouts as rows: whose they are, and every top-level number of their records merged with `response.usage`,
    except those named in `ignore`."""

    def __init__(self, ignore: frozenset[str] = frozenset()) -> None:
        self._ignored = ignore
        self.tasks = array("q")
        self.rollouts = array("q")
        self.runs = array("q")
        self.columns: dict[str, Column] = {}

    def __len__(self) -> int:
        return len(self.tasks)

    def add(self, task: int, rollout: int, record: Record, run: int = 0) -> None:
        """Append one rollout. Where a record and its usage both have a number, the usage's counts."""
        row = len(self.tasks)
        usage, columns = numbers_in(usage_of(record)), self.columns
        for name, number in numbers_in(record).items():
            if name not in usage and name not in self._ignored:
                (columns.get(name) or self._new_column(name)).put(row, number, 0)
        for name, number in usage.items():
            (columns.get(name) or self._new_column(name)).put(row, number, USAGE)
        self.tasks.append(task)
        self.rollouts.append(rollout)
        self.runs.append(run)

    def seal(self) -> None:
        """Fill the columns up to the last row. Call it after the last `add`, before reading arrays."""
        for column in self.columns.values():
            column.pad(len(self))

    def _new_column(self, name: str) -> Column:
        return self.columns.setdefault(name, Column())
