"""A counter per session. Its construction, tool, verifier and metrics can be held by files: see tests/faults/points.py.

What was really done is written to a file of effects, so that a call made twice is seen however the caller counts.
"""

import json
import os
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SessionExpiredError,
    SessionStore,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from tests.faults.points import FOLDER_ENV, Gate

EFFECTS = "effects.jsonl"
LONG = "." * 2000
"""So that a few calls need more room on a disk than the last page of a file has."""


class HeldCounterConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED


class SeedRequest(BaseSeedSessionRequest):
    model_config = ConfigDict(extra="allow")


class AddResponse(BaseModel):
    count: int


class VerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    calls: int


class Episode:
    """What one session did, and for which rollout."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.key = (row.get("_ng_task_index"), row.get("_ng_rollout_index"))
        self.calls = 0


class HeldCounter(SimpleResourcesServer):
    config: HeldCounterConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _episodes: SessionStore[Episode] = PrivateAttr(default_factory=SessionStore)
    _tool: Gate = PrivateAttr(default_factory=lambda: Gate("tool"))
    _verifier: Gate = PrivateAttr(default_factory=lambda: Gate("verify"))
    _metrics: Gate = PrivateAttr(default_factory=lambda: Gate("aggregate"))

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        Gate("startup").pass_through()

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        return app

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:  # type: ignore[override]
        self._episodes[request.session[SESSION_ID_KEY]] = Episode(body.model_dump())
        return BaseSeedSessionResponse()

    async def add(self, request: Request) -> AddResponse:
        episode = self._episode(request)
        episode.calls += 1
        _note("tool", episode)
        print(f"tool called for {episode.key}", LONG, flush=True)
        await self._tool.wait()
        return AddResponse(count=episode.calls)

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyResponse:  # type: ignore[override]
        episode = self._episode(request)
        _note("verify", episode)
        print(f"verified {episode.key}", LONG, flush=True)
        await self._verifier.wait()
        return VerifyResponse(**body.model_dump(), reward=float(episode.calls == 1), calls=episode.calls)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        self._metrics.pass_through()
        return {"held/calls": sum(rollout["calls"] for task in tasks for rollout in task)}

    def _episode(self, request: Request) -> Episode:
        session_id = request.session[SESSION_ID_KEY]
        try:
            return self._episodes[session_id]
        except KeyError:
            raise SessionExpiredError(session_id, "was lost", server=self.config.name) from None


def _note(what: str, episode: Episode) -> None:
    line = json.dumps({"what": what, "task": episode.key[0], "repeat": episode.key[1]}) + "\n"
    descriptor = os.open(f"{os.environ[FOLDER_ENV]}/{EFFECTS}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    HeldCounter.run_webserver()
