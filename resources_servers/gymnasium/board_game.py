"""Games on a board that is shown as text: what they share, whatever the game."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import BaseModel

from nemo_gym.base_resources_server import BaseResourcesServerConfig, NeMoGymResponse
from nemo_gym.task_data import normalize_task_fields
from resources_servers.gymnasium.actions import OnInvalidAction, extract_text
from resources_servers.gymnasium.rows import validated
from resources_servers.gymnasium.server import GymnasiumServer, StepResult

MOVE_REWARD = -0.1

SettingsT = TypeVar("SettingsT", bound=BaseModel)


class BoardGameConfig(BaseResourcesServerConfig):
    """`on_invalid_action`: a reply without an action is an error (400, which fails the rollout), or costs a move
    (`penalty`), or nothing (`noop`); after the last two the board is shown again."""

    on_invalid_action: OnInvalidAction = "error"


@dataclass
class BoardGame(ABC):
    """A game under way."""

    total_reward: float = 0.0
    done: bool = False

    @abstractmethod
    def board(self) -> str:
        """The board alone."""

    @abstractmethod
    def shown(self) -> str:
        """The board with what the model has to know."""

    @abstractmethod
    def play(self, actions: list[int]) -> tuple[float, dict[str, Any]]:
        """Do these, at least one; what they are worth, and what there is to say of them."""

    def pass_move(self) -> float:
        """Do nothing, at the cost of a move."""
        return MOVE_REWARD


class BoardGameServer(GymnasiumServer):
    """Keeps a `BoardGame` a session, and has it play what the model says."""

    config: BoardGameConfig

    @abstractmethod
    def new_game(self, metadata: dict[str, Any]) -> BoardGame:
        """The game of a row, in a thread. HTTPException 400 for rows that can't be played."""

    @abstractmethod
    def actions_in(self, text: str) -> list[int]:
        """What a reply says to do."""

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str | None, dict[str, Any]]:
        game = await asyncio.to_thread(self.new_game, metadata)
        self.session_state[session_id] = game
        return game.shown(), {}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> StepResult:
        """HTTPException 400 without a reset, and for a reply without an action unless configured otherwise."""
        game = self.session_state.get(session_id)
        if game is None:
            raise HTTPException(400, "There is no game: call /reset first.")
        if game.done:
            return game.board(), 0.0, True, False, {"total_reward": game.total_reward}
        actions = self.actions_in(extract_text(action))
        reward, info = game.play(actions) if actions else self._invalid(game)
        game.total_reward += reward
        info["total_reward"] = game.total_reward
        return game.board() if game.done else game.shown(), reward, game.done, False, info

    def _invalid(self, game: BoardGame) -> tuple[float, dict[str, Any]]:
        if self.config.on_invalid_action == "error":
            raise HTTPException(400, "The reply holds no action, such as <action>Left</action>.")
        reward = game.pass_move() if self.config.on_invalid_action == "penalty" else 0.0
        return reward, {"action_is_effective": False, "action_is_valid": False, "success": False}


def settings_of(base: SettingsT, metadata: Mapping[str, Any]) -> SettingsT:
    """The settings with those that a row has in their place. HTTPException 400 naming one that can't be used."""
    fields, _ = normalize_task_fields(dict(metadata))
    own = {name: fields[name] for name in type(base).model_fields if fields.get(name) is not None}
    return validated(type(base), {**base.model_dump(), **own})
