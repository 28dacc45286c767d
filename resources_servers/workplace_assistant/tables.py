"""The office's tables: read once, shared by all sessions, copied by the one that writes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, str]
"""Column name to text; every column is text, an empty one is ''."""

DATA = Path(__file__).parent / "csv_data"
_CASE_MATTERS = frozenset({"status", "list_name", "board"})


class Table:
    """Rows in order, each with a label that it keeps while others come and go.

    Labels follow the data frames that the ground truths of this data were made with: they tell a deleted and recreated
    row from one that was never touched.
    """

    def __init__(self, rows: tuple[Row, ...], columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._rows: tuple[Row, ...] | list[Row] = rows
        self._labels: range | list[int] = range(len(rows))

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, column: str, value: str) -> Row | None:
        """The first row with that value; None when there is none."""
        return next((row for row in self._rows if row[column] == value), None)

    def append(self, row: Row, *, relabel: bool = True) -> None:
        """Add a row at the end. It is labelled 0 without `relabel`; with it all rows are numbered anew."""
        self._rows = [*self._rows, _as_text(row)]
        self._labels = range(len(self._rows)) if relabel else [*self._labels, 0]

    def delete(self, column: str, value: str) -> bool:
        """Remove the rows with that value; False when there was none."""
        kept = [(label, row) for label, row in zip(self._labels, self._rows, strict=True) if row[column] != value]
        if len(kept) == len(self._rows):
            return False
        self._labels, self._rows = [label for label, _ in kept], [row for _, row in kept]
        return True

    def update(self, column: str, value: str, changes: Mapping[str, str]) -> bool:
        """Change fields of the rows with that value; False when there is none."""
        if self.find(column, value) is None:
            return False
        self._rows = [_as_text({**row, **changes}) if row[column] == value else row for row in self._rows]
        return True

    def next_id(self, column: str) -> int:
        """One more than the largest number in a column."""
        return max((int(row[column]) for row in self._rows), default=-1) + 1

    def is_equal(self, other: Table) -> bool:
        """Whether both hold the same rows in the same order under the same labels; most columns without case."""
        if self._rows is other._rows and self._labels is other._labels:
            return True
        return list(self._labels) == list(other._labels) and all(
            _compared(mine) == _compared(theirs) for mine, theirs in zip(self._rows, other._rows, strict=True)
        )


def _as_text(fields: Mapping[str, Any]) -> Row:
    """A row of what a model wrote, which may be anything that JSON has."""
    return MappingProxyType({name: str(value) for name, value in fields.items()})


def _compared(row: Row) -> dict[str, str]:
    return {name: text if name in _CASE_MATTERS else text.lower() for name, text in row.items()}


@dataclass
class Office:
    """All that the tools of one session work on."""

    analytics: Table = field(default_factory=lambda: _table("analytics_data"))
    calendar: Table = field(default_factory=lambda: _table("calendar_events"))
    customers: Table = field(default_factory=lambda: _table("customer_relationship_manager_data"))
    emails: Table = field(default_factory=lambda: _table("emails"))
    tasks: Table = field(default_factory=lambda: _table("project_tasks"))
    plots: Table = field(default_factory=lambda: Table((), ("file_path",)))

    @property
    def addresses(self) -> tuple[str, ...]:
        return _addresses()

    def is_equal(self, other: Office) -> bool:
        """Whether nothing that tools can change differs."""
        changed: tuple[Callable[[Office], Table], ...] = (
            lambda office: office.calendar,
            lambda office: office.emails,
            lambda office: office.plots,
            lambda office: office.tasks,
            lambda office: office.customers,
        )
        return all(table(self).is_equal(table(other)) for table in changed)


def _table(name: str) -> Table:
    rows, columns = _read(name)
    return Table(rows, columns)


@cache
def _read(name: str) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    with (DATA / "processed" / f"{name}.csv").open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        rows = tuple(MappingProxyType(row) for row in reader)
        return rows, tuple(reader.fieldnames or ())


@cache
def _addresses() -> tuple[str, ...]:
    return tuple((DATA / "raw" / "email_addresses.csv").read_text(encoding="utf-8").split())
