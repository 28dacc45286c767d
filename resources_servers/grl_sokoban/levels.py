"""Making Sokoban levels that can be solved: they are played backwards, from the boxes on their targets."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

Place = tuple[int, int]
"""Row and column."""

UP, DOWN, LEFT, RIGHT = DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))

_TURN_SHARE = 0.35
_TRIES = 200
_MAX_STATES = 20_000
# What a step of the walk opens around it.
_BRUSHES: tuple[tuple[Place, ...], ...] = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
    ((0, 0), (0, 1), (1, 0), (1, 1)),
    ((0, 0), (0, 1), (-1, 0)),
)


@dataclass(frozen=True)
class Level:
    """`floor` are the places that aren't walls."""

    rows: int
    columns: int
    floor: frozenset[Place]
    targets: frozenset[Place]
    boxes: frozenset[Place]
    player: Place


def make_level(chance: Random, rows: int, columns: int, boxes: int, search_depth: int) -> Level | None:
    """A level whose boxes are as far from their targets as `search_depth` moves backwards take them.

    None where so many boxes find no room. The same state of `chance` gives the same level.
    """
    for _ in range(_TRIES):
        floor = _floor(chance, rows, columns)
        if len(floor) <= boxes + 1:
            continue
        *targets, player = chance.sample(sorted(floor), boxes + 1)
        found = _pulled_apart(frozenset(floor), frozenset(targets), player, search_depth)
        if found is not None:
            return Level(rows, columns, frozenset(floor), frozenset(targets), *found)
    return None


def moved(place: Place, direction: Place, distance: int = 1) -> Place:
    return place[0] + direction[0] * distance, place[1] + direction[1] * distance


def _floor(chance: Random, rows: int, columns: int) -> set[Place]:
    """What a random walk with brushes of several shapes opens, within a wall on all sides."""
    here = (chance.randrange(1, rows - 1), chance.randrange(1, columns - 1))
    direction = chance.choice(DIRECTIONS)
    floor = {here}
    for _ in range(int(1.5 * (rows + columns))):
        if chance.random() < _TURN_SHARE:
            direction = chance.choice(DIRECTIONS)
        row, column = moved(here, direction)
        here = (min(max(row, 1), rows - 2), min(max(column, 1), columns - 2))
        painted = (moved(here, offset) for offset in chance.choice(_BRUSHES))
        floor |= {(row, column) for row, column in painted if 0 < row < rows - 1 and 0 < column < columns - 1}
    return floor


def _pulled_apart(
    floor: frozenset[Place], targets: frozenset[Place], player: Place, search_depth: int
) -> tuple[frozenset[Place], Place] | None:
    """Boxes and player in the state, among those reached by pulling, whose boxes are farthest from the targets and all
    off them; of equals the one that takes most moves. None where there is none."""
    start = (targets, player)
    seen = {start}
    waiting = deque([(start, 0)])
    best, best_score = None, (0, 0)
    while waiting:
        (boxes, player), depth = waiting.popleft()
        score = (_displacement(boxes, targets), depth)
        if boxes.isdisjoint(targets) and score > best_score:
            best, best_score = (boxes, player), score
        if depth == search_depth:
            continue
        for direction in DIRECTIONS:
            ahead, behind = moved(player, direction), moved(player, direction, -1)
            if ahead not in floor or ahead in boxes:
                continue
            pulled = [(boxes, ahead), (boxes - {behind} | {player}, ahead)] if behind in boxes else [(boxes, ahead)]
            for state in pulled:
                if state not in seen and len(seen) < _MAX_STATES:
                    seen.add(state)
                    waiting.append((state, depth + 1))
    return best


def _displacement(boxes: frozenset[Place], targets: frozenset[Place]) -> int:
    """The ways of all boxes to their nearest targets."""
    return sum(min(abs(row - r) + abs(column - c) for r, c in targets) for row, column in boxes)
