"""The environment of one rollout, over HTTP: it is reset, stepped and closed."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from resources_servers.gymnasium import EnvResetResponse, EnvStepResponse
from responses_api_agents.simple_agent.conversation import cookie_values

REQUEST_ID_KEY = "_ng_step_request_id"
_CLOSE_SECONDS = 30.0

AnswerT = TypeVar("AnswerT", bound=BaseModel)
LOG = logging.getLogger(__name__)
_closing: set[asyncio.Task[None]] = set()


@dataclass
class Environment:
    """`row` goes with every request, and `cookies` with what the server adds to them."""

    client: ServerClient
    server_name: str
    row: dict[str, Any]
    cookies: dict[str, str]
    is_closable: bool = False
    is_idempotent: bool = False
    closed: bool = field(default=False, init=False)

    async def reset(self) -> EnvResetResponse:
        """Begin the episode."""
        raw = await self._post("/reset", self.row)
        info = raw.get("info") if isinstance(raw, dict) else None
        flags = info if isinstance(info, dict) else {}
        # Read before the rest is looked at: what was opened has to be closed, whatever else it answered.
        self.is_closable = flags.get("supports_explicit_close") is True
        self.is_idempotent = flags.get("supports_step_idempotency") is True
        return self._read(EnvResetResponse, raw)

    async def step(self, response: Any) -> EnvStepResponse:
        """Do what a model's response says; the response as it came."""
        request_id = {REQUEST_ID_KEY: uuid4().hex} if self.is_idempotent else {}
        return self._read(EnvStepResponse, await self._post("/step", {**self.row, "response": response, **request_id}))

    async def close(self) -> None:
        """End the session, for servers that want to be told."""
        if self.is_closable and not self.closed:
            self.closed = True
            await self._post("/close", {}, timeout=_CLOSE_SECONDS)

    async def close_quietly(self) -> None:
        """The same for a rollout that came to nothing, where only its own failure counts."""
        try:
            await self.close()
        except Exception as error:
            LOG.info("The session at %s could not be closed: %r", self.server_name, error)

    def close_in_background(self) -> None:
        """The same for one that was given up, and can't wait."""
        if not self.is_closable:
            return
        task = asyncio.get_running_loop().create_task(self.close_quietly())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def _post(self, url_path: str, body: dict[str, Any], **options: Any) -> Any:
        answer = await self.client.post(
            server_name=self.server_name, url_path=url_path, json=body, cookies=self.cookies, **options
        )
        await raise_for_status(answer)
        self.cookies = {**self.cookies, **cookie_values(answer.cookies)}
        return await get_response_json(answer)

    def _read(self, model: type[AnswerT], raw: Any) -> AnswerT:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"])) or "the answer"
            raise RuntimeError(f"{self.server_name} is no gymnasium server: {where}: {problem['msg']}") from error
