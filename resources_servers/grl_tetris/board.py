"""A small board on which pieces come to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

Cell = tuple[int, int]
"""Row from the top, and column."""

Piece = tuple[Cell, ...]

SINGLE: Piece = ((0, 0),)
UPRIGHT: Piece = ((0, 0), (1, 0))
FLAT: Piece = ((0, 0), (0, 1))
SQUARE: Piece = ((0, 0), (0, 1), (1, 0), (1, 1))
BOXES: dict[int, tuple[Piece, ...]] = {1: (SINGLE,), 2: (UPRIGHT, FLAT), 3: (UPRIGHT, FLAT, SQUARE)}

LEFT, RIGHT, DOWN = (0, -1), (0, 1), (1, 0)
_EVENNESS = 5


def piece_sequence(chance: Random, kinds: tuple[Piece, ...], count: int) -> list[Piece]:
    """`count` pieces; the more often a kind came, the less often it comes."""
    came: Counter[Piece] = Counter(dict.fromkeys(kinds, 0))
    pieces = []
    for _ in range(count):
        most = max(came.values())
        piece = chance.choices(kinds, [_EVENNESS + most - came[kind] for kind in kinds])[0]
        came[piece] += 1
        pieces.append(piece)
    return pieces


@dataclass
class Board:
    """`pieces` are those still to come; `fallen` are the cells of those that rest, `cells` of the one that falls."""

    width: int
    height: int
    pieces: list[Piece]
    fallen: set[Cell] = field(default_factory=set)
    cells: frozenset[Cell] = frozenset()

    def bring_next(self) -> bool:
        """Have the next piece fall from the middle of the top; False where it finds no place."""
        if not self.pieces:
            self.cells = frozenset()
            return False
        piece = self.pieces.pop(0)
        begin = (self.width - 1 - max(column for _, column in piece)) // 2
        cells = frozenset((row, column + begin) for row, column in piece)
        is_free = self._is_free(cells)
        self.cells = cells if is_free else frozenset()
        return is_free

    def shift(self, direction: Cell) -> bool:
        """Move the piece by one; False where something is in the way."""
        cells = self._shifted(direction)
        if not self._is_free(cells):
            return False
        self.cells = cells
        return True

    @property
    def rests(self) -> bool:
        """Whether the piece can't fall any further."""
        return not self._is_free(self._shifted(DOWN))

    def settle(self) -> int:
        """Leave the piece where it is, and clear the rows that are full; how many."""
        self.fallen |= self.cells
        self.cells = frozenset()
        in_row = Counter(row for row, _ in self.fallen)
        full = [row for row in range(self.height) if in_row[row] == self.width]
        for cleared in full:
            above = {(row + (row < cleared), column) for row, column in self.fallen if row != cleared}
            self.fallen = above
        return len(full)

    @property
    def is_full(self) -> bool:
        """Whether the top row is occupied."""
        return any(row == 0 for row, _ in self.fallen)

    def _shifted(self, direction: Cell) -> frozenset[Cell]:
        return frozenset((row + direction[0], column + direction[1]) for row, column in self.cells)

    def _is_free(self, cells: frozenset[Cell]) -> bool:
        inside = all(0 <= row < self.height and 0 <= column < self.width for row, column in cells)
        return inside and self.fallen.isdisjoint(cells)
