"""The shortest way through a level: for tests, and for telling how hard it is."""

from __future__ import annotations

from collections import deque

from resources_servers.grl_sokoban.levels import DIRECTIONS, Level, Place, moved

State = tuple[frozenset[Place], Place]


def shortest_solution(level: Level) -> list[int] | None:
    """The actions, 1 to 4, in order; None for a level that can't be solved."""
    start: State = (level.boxes, level.player)
    came: dict[State, tuple[State, int] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if state[0] == level.targets:
            return _way_to(state, came)
        for action, direction in enumerate(DIRECTIONS, 1):
            following = _after(level, state, direction)
            if following is not None and following not in came:
                came[following] = (state, action)
                waiting.append(following)
    return None


def _after(level: Level, state: State, direction: Place) -> State | None:
    boxes, player = state
    ahead, beyond = moved(player, direction), moved(player, direction, 2)
    if ahead not in level.floor:
        return None
    if ahead not in boxes:
        return boxes, ahead
    if beyond not in level.floor or beyond in boxes:
        return None
    return boxes - {ahead} | {beyond}, ahead


def _way_to(state: State, came: dict[State, tuple[State, int] | None]) -> list[int]:
    actions: list[int] = []
    before = came[state]
    while before is not None:
        state, action = before
        actions.append(action)
        before = came[state]
    return actions[::-1]
