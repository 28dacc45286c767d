"""Sokoban, a move at a time: boxes are pushed onto targets."""

import random
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fastapi import HTTPException
from pydantic import BaseModel, Field, field_validator

from resources_servers.grl_sokoban.levels import DIRECTIONS, Level, Place, make_level, moved
from resources_servers.gymnasium import tagged_actions
from resources_servers.gymnasium.board_game import (
    MOVE_REWARD,
    BoardGame,
    BoardGameConfig,
    BoardGameServer,
    settings_of,
)

BOX_REWARD = 1.0
SOLVED_REWARD = 10.0
NAMES = ("up", "down", "left", "right")
_CHOICES = (*NAMES, "1", "2", "3", "4")
_STANDALONE = re.compile(r"(?<!\w)(?ai:(up|down|left|right|[1-4]))(?!\w)")


class SokobanSettings(BaseModel):
    """`dim_room` are rows and columns, walls included; `search_depth` bounds how far levels are played backwards."""

    grid_lookup: dict[int, str] = {0: "#", 1: "_", 2: "O", 3: "√", 4: "X", 5: "P", 6: "S"}
    action_lookup: dict[int, str] = {1: "Up", 2: "Down", 3: "Left", 4: "Right"}
    search_depth: int = Field(default=100, ge=1, le=10_000)
    dim_room: tuple[int, int] = (6, 6)
    max_steps: int = Field(default=100, ge=1)
    num_boxes: int = Field(default=1, ge=1, le=10)
    render_mode: Literal["text"] = "text"

    @field_validator("dim_room")
    @classmethod
    def _fits_a_screen(cls, sides: tuple[int, int]) -> tuple[int, int]:
        if not all(4 <= side <= 50 for side in sides):
            raise ValueError("rooms have 4 to 50 rows and columns")
        return sides

    @field_validator("grid_lookup")
    @classmethod
    def _has_a_sign_for_all(cls, signs: dict[int, str]) -> dict[int, str]:
        if missing := set(range(7)) - set(signs):
            raise ValueError(f"there is no sign for {sorted(missing)}")
        return signs


class SokobanRow(BaseModel):
    seed: int | None = None


class GrlSokobanResourcesServerConfig(BoardGameConfig):
    env_config: SokobanSettings = Field(default_factory=SokobanSettings)


@dataclass
class SokobanSessionState(BoardGame):
    """A level under way."""

    level: Level = field(kw_only=True)
    settings: SokobanSettings = field(kw_only=True)
    moves: int = 0

    def __post_init__(self) -> None:
        self.boxes = set(self.level.boxes)
        self.player = self.level.player

    def board(self) -> str:
        rows, columns = range(self.level.rows), range(self.level.columns)
        return "\n".join("".join(self._sign((row, column)) for column in columns) for row in rows)

    def shown(self) -> str:
        wall, floor, target, stored, box, player, standing = (self.settings.grid_lookup[kind] for kind in range(7))
        labels = [self.label(action) for action in range(1, 5)]
        return (
            f"Sokoban\n{self.board()}\n\n"
            f"{wall} wall, {floor} floor, {target} target, {box} box, {stored} box on a target, {player} you, "
            f"{standing} you on a target. Push every box onto a target.\n"
            f"Answer with exactly one action, {', '.join(labels[:-1])} or {labels[-1]}, as in "
            f"<action>{labels[0]}</action>."
        )

    def play(self, actions: list[int]) -> tuple[float, dict[str, Any]]:
        action = actions[0]
        stored, was_at = self._stored(), self.player
        self._move(DIRECTIONS[action - 1])
        is_solved = self._stored() == len(self.boxes)
        reward = MOVE_REWARD + BOX_REWARD * (self._stored() - stored) + SOLVED_REWARD * is_solved
        self._count_move(is_solved)
        return reward, {
            "action_is_effective": self.player != was_at,
            "action_is_valid": True,
            "success": is_solved,
            "action_id": action,
            "action_label": self.label(action),
        }

    def pass_move(self) -> float:
        self._count_move(False)
        return MOVE_REWARD

    def label(self, action: int) -> str:
        return self.settings.action_lookup.get(action, NAMES[action - 1].capitalize())

    def _move(self, direction: Place) -> None:
        """A step, with the box that stands in the way if there is room behind it."""
        ahead, beyond = moved(self.player, direction), moved(self.player, direction, 2)
        if ahead not in self.level.floor:
            return
        if ahead in self.boxes:
            if beyond not in self.level.floor or beyond in self.boxes:
                return
            self.boxes = self.boxes - {ahead} | {beyond}
        self.player = ahead

    def _count_move(self, is_solved: bool) -> None:
        self.moves += 1
        self.done = is_solved or self.moves >= self.settings.max_steps

    def _stored(self) -> int:
        return len(self.boxes & self.level.targets)

    def _sign(self, place: Place) -> str:
        is_target = place in self.level.targets
        if place == self.player:
            kind = 6 if is_target else 5
        elif place in self.boxes:
            kind = 3 if is_target else 4
        elif place in self.level.floor:
            kind = 2 if is_target else 1
        else:
            kind = 0
        return self.settings.grid_lookup[kind]


class GrlSokobanResourcesServer(BoardGameServer):
    config: GrlSokobanResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    explicit_close: ClassVar[bool] = True

    def new_game(self, metadata: dict[str, Any]) -> SokobanSessionState:
        settings = settings_of(self.config.env_config, metadata)
        chance = random.Random(settings_of(SokobanRow(), metadata).seed)
        level = make_level(chance, *settings.dim_room, settings.num_boxes, settings.search_depth)
        if level is None:
            raise HTTPException(
                400, f"A room of {settings.dim_room} has no room for a level with num_boxes {settings.num_boxes}."
            )
        return SokobanSessionState(level=level, settings=settings)

    def actions_in(self, text: str) -> list[int]:
        """The first tag that is an action, else the first word or digit that is."""
        found = tagged_actions(text, _CHOICES)[:1] or [match[1].lower() for match in _first(text)]
        return [int(word) if word.isdecimal() else NAMES.index(word) + 1 for word in found]


def _first(text: str) -> list[re.Match[str]]:
    match = _STANDALONE.search(text)
    return [] if match is None else [match]


if __name__ == "__main__":
    GrlSokobanResourcesServer.run_webserver()
