"""The base class of environments that are reset and stepped."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import MutableMapping
from typing import Any, ClassVar, NoReturn, TypeAlias

from fastapi import FastAPI, Request
from pydantic import Field

from nemo_gym.base_resources_server import BaseVerifyRequest, SimpleResourcesServer
from nemo_gym.errors import GymError
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.rollout_correlation import RolloutContextMiddleware
from nemo_gym.serve.json_app import json_app
from nemo_gym.server_utils import SESSION_ID_KEY
from resources_servers.gymnasium.episodes import EpisodeStore
from resources_servers.gymnasium.wire import (
    EnvCloseResponse,
    EnvResetRequest,
    EnvResetResponse,
    EnvStepRequest,
    EnvStepResponse,
)

StepResult: TypeAlias = tuple[str | None, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""


class BadStepError(GymError):
    """An environment's `step` returned what is no step."""


class GymnasiumServer(SimpleResourcesServer):
    """Implement `step`, and `reset` where an episode has a beginning; keep its state in `session_state[session_id]`.

    There is no verifier: rewards come with the steps, and the agent adds them up.
    """

    explicit_close: ClassVar[bool] = False
    """Whether agents are asked to `POST /close` when they are done, also with episodes that did not end."""

    session_state: MutableMapping[Any, Any] = Field(default_factory=EpisodeStore, exclude=True)
    """By session id; forgets what nobody comes back for."""

    def setup_webserver(self) -> FastAPI:
        """The app with the routes of these environments, which have no others; overrides add theirs to it."""
        app = json_app()
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        self._claim_session_stores()
        app.post("/reset")(self.reset_episode)
        app.post("/step")(self.step_episode)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        if self.explicit_close:
            app.post("/close")(self.close_episode)
        return app

    def _session_opening_paths(self) -> tuple[str, ...]:
        return ("/reset",)

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str | None, dict[str, Any]]:
        """Begin an episode; `metadata` are the row's fields. What the model is shown, if anything, and `info`."""
        return None, {}

    @abstractmethod
    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> StepResult:
        """Do what the model said now."""

    async def close_session(self, session_id: str | None) -> None:
        """Drop an episode, which is over or given up; again, or without one, nothing happens."""
        self.session_state.pop(session_id, None)

    async def reset_episode(self, request: Request, body: EnvResetRequest) -> EnvResetResponse:
        observation, info = await self.reset(body.model_extra or {}, _session_id_of(request))
        if self.explicit_close:
            info = {"supports_explicit_close": True, **info}
        return EnvResetResponse(observation=observation, info=info)

    async def step_episode(self, request: Request, body: EnvStepRequest) -> EnvStepResponse:
        session_id = _session_id_of(request)
        observation, reward, terminated, truncated, info = await self.step(
            body.response, body.model_extra or {}, session_id
        )
        answer = EnvStepResponse(
            observation=observation,
            reward=self._number(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info=info,
        )
        if answer.terminated or answer.truncated:
            await self.close_session(session_id)
        return answer

    async def close_episode(self, request: Request, body: dict[str, Any]) -> EnvCloseResponse:
        await self.close_session(_session_id_of(request))
        return EnvCloseResponse()

    async def verify(self, body: BaseVerifyRequest) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no verifier: its rewards come with its steps")

    def _number(self, reward: Any) -> float:
        try:
            number = math.nan if isinstance(reward, bool | str) else float(reward)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise BadStepError(f"{type(self).__name__}.step gave the reward {reward!r}; give a finite number.")
        return number


def _session_id_of(request: Request) -> str | None:
    session_id = request.session.get(SESSION_ID_KEY)
    return session_id if isinstance(session_id, str) else None
