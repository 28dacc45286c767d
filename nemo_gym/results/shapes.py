"""The shapes of records: which of their fields are numbers, found out once for all records that look alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from nemo_gym.results.records import REWARD, Record

PRESENT, INTEGER, USAGE = 1, 2, 4
_MOST_SHAPES = 512

Getter = Callable[[Record], Iterable[Any]]


@dataclass(eq=False, slots=True)
class Shape:
    """What records of one shape have in common, and the numbers of those met since the last `clear`, row by row.

    `fields` are the columns of their numbers with the kind of each; where a record and its usage share a name, the
    usage's field is the later one.
    """

    fields: list[tuple[str, int]]
    own: Getter
    of_usage: Getter
    rows: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def clear(self) -> None:
        self.rows, self.values = [], []


class Shapes(dict[tuple[Any, ...], Shape]):
    """The shapes met so far, by the names and types of their fields and of those of their usage, one after another."""

    def __init__(self, ignored: Collection[str]) -> None:
        super().__init__()
        self._ignored = ignored

    def learn(self, key: tuple[Any, ...], record: Record, usage: Record) -> Shape:
        """Get to know the shape of a record."""
        own = [(name, kind) for name, kind in _numbers(record) if name not in self._ignored]
        theirs = [(name, kind | USAGE) for name, kind in _numbers(usage)]
        shape = Shape(own + theirs, _getter(name for name, _ in own), _getter(name for name, _ in theirs))
        self[key] = shape
        return shape

    @property
    def are_many(self) -> bool:
        return len(self) >= _MOST_SHAPES

    def used(self) -> list[Shape]:
        """Those that have rows, in the order they were met."""
        return [shape for shape in self.values() if shape.rows]


def _numbers(fields: Record) -> list[tuple[str, int]]:
    """Names that may hold a number that counts, with its kind: as in `numbers_in`, but by type alone."""
    kinds = ((name, type(value)) for name, value in fields.items())
    return [
        (name, PRESENT if issubclass(kind, float) else PRESENT | INTEGER)
        for name, kind in kinds
        if issubclass(kind, (int, float)) and name[:1] != "_" and not (kind is bool and name == REWARD)
    ]


def _getter(names: Iterable[str]) -> Getter:
    wanted = tuple(names)
    if not wanted:
        return lambda fields: ()
    if len(wanted) == 1:
        return lambda fields: (fields[wanted[0]],)
    return itemgetter(*wanted)
