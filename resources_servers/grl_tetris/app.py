"""Tetris on a small board: a reply is one or more moves, and a full row is what counts."""

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, Field, field_validator

from resources_servers.grl_tetris.board import BOXES, DOWN, LEFT, RIGHT, Board, piece_sequence
from resources_servers.gymnasium import tagged_actions
from resources_servers.gymnasium.board_game import (
    MOVE_REWARD,
    BoardGame,
    BoardGameConfig,
    BoardGameServer,
    settings_of,
)

ROW_REWARD = 10.0
MAX_ACTIONS = 10_000
"""Of one reply: more don't fit any game, and are left out."""
NAMES = ("left", "right", "down")
DIRECTIONS = (LEFT, RIGHT, DOWN)
_CHOICES = (*NAMES, "0", "1", "2")


class TetrisSettings(BaseModel):
    """`dim_x` columns and `dim_y` rows. `box_type`: 1 single cells, 2 dominoes, 3 dominoes and squares."""

    grid_lookup: dict[int, str] = {0: "_", 1: "#", 2: "X"}
    action_lookup: dict[int, str] = {0: "Left", 1: "Right", 2: "Down"}
    dim_x: int = Field(default=4, ge=2, le=50)
    dim_y: int = Field(default=4, ge=2, le=50)
    box_type: int = Field(default=3, ge=1, le=3)

    @field_validator("grid_lookup")
    @classmethod
    def _has_a_sign_for_all(cls, signs: dict[int, str]) -> dict[int, str]:
        if missing := set(range(3)) - set(signs):
            raise ValueError(f"there is no sign for {sorted(missing)}")
        return signs


class TetrisRow(BaseModel):
    seed: int | None = None


class GrlTetrisResourcesServerConfig(BoardGameConfig):
    env_config: TetrisSettings = Field(default_factory=TetrisSettings)


@dataclass
class TetrisSessionState(BoardGame):
    """A board under way."""

    field_: Board = field(kw_only=True)
    settings: TetrisSettings = field(kw_only=True)

    def board(self) -> str:
        rows, columns = range(self.field_.height), range(self.field_.width)
        return "\n".join("".join(self._sign(row, column) for column in columns) for row in rows)

    def shown(self) -> str:
        empty, fallen, falling = (self.settings.grid_lookup[kind] for kind in range(3))
        labels = [self.label(action) for action in range(3)]
        return (
            f"Tetris\n{self.board()}\n\n"
            f"{empty} empty, {fallen} fallen, {falling} the piece that falls. Fill a row before the top row is reached."
            f"\nAnswer with one or more actions in order, {labels[0]}, {labels[1]} or {labels[2]}, as in "
            f"<action>{labels[0]}</action><action>{labels[2]}</action>."
        )

    def play(self, actions: list[int]) -> tuple[float, dict[str, Any]]:
        total, played = 0.0, []
        info: dict[str, Any] = {}
        for action in actions:
            reward, info = self._move(action)
            total += reward
            played.append(self.label(action))
            if self.done:
                break
        return total, {**info, "num_actions_applied": len(played), "actions": played}

    def label(self, action: int) -> str:
        return self.settings.action_lookup.get(action, NAMES[action].capitalize())

    def _move(self, action: int) -> tuple[float, dict[str, Any]]:
        is_effective = self.field_.shift(DIRECTIONS[action])
        cleared, dropped = 0, self.field_.rests
        if dropped:
            cleared = self.field_.settle()
            self.done = cleared > 0 or self.field_.is_full or not self.field_.bring_next()
        info = {
            "action_is_effective": is_effective,
            "action_is_valid": True,
            "success": cleared > 0,
            "dropped": dropped,
        }
        return MOVE_REWARD + ROW_REWARD * cleared, info

    def _sign(self, row: int, column: int) -> str:
        kind = 2 if (row, column) in self.field_.cells else 1 if (row, column) in self.field_.fallen else 0
        return self.settings.grid_lookup[kind]


class GrlTetrisResourcesServer(BoardGameServer):
    config: GrlTetrisResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    explicit_close: ClassVar[bool] = True

    def new_game(self, metadata: dict[str, Any]) -> TetrisSessionState:
        settings = settings_of(self.config.env_config, metadata)
        chance = random.Random(settings_of(TetrisRow(), metadata).seed)
        count = settings.dim_x * settings.dim_y + 1
        board = Board(settings.dim_x, settings.dim_y, piece_sequence(chance, BOXES[settings.box_type], count))
        board.bring_next()
        return TetrisSessionState(field_=board, settings=settings)

    def actions_in(self, text: str) -> list[int]:
        """All tags that are actions, in order."""
        found = tagged_actions(text, _CHOICES)[:MAX_ACTIONS]
        return [int(word) if word.isdecimal() else NAMES.index(word) for word in found]


if __name__ == "__main__":
    GrlTetrisResourcesServer.run_webserver()
