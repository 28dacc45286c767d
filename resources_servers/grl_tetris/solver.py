"""A way to the first full row: for tests, and for telling whether there is one."""

from __future__ import annotations

from collections import deque
from copy import copy

from resources_servers.grl_tetris.board import DOWN, LEFT, RIGHT, Board

_MAX_BOARDS = 50_000


def shortest_win(board: Board) -> list[int] | None:
    """The actions, 0 to 2, in order; None where no row can be filled."""
    waiting: deque[tuple[Board, list[int]]] = deque([(board, [])])
    seen = {_key(board)}
    while waiting and len(seen) < _MAX_BOARDS:
        here, actions = waiting.popleft()
        for action, direction in enumerate((LEFT, RIGHT, DOWN)):
            following = _copied(here)
            if not following.shift(direction):
                continue
            if following.rests:
                if following.settle():
                    return [*actions, action]
                if following.is_full or not following.bring_next():
                    continue
            if (key := _key(following)) not in seen:
                seen.add(key)
                waiting.append((following, [*actions, action]))
    return None


def _copied(board: Board) -> Board:
    made = copy(board)
    made.pieces, made.fallen = list(board.pieces), set(board.fallen)
    return made


def _key(board: Board) -> tuple[object, ...]:
    return frozenset(board.fallen), board.cells, len(board.pieces)
