"""An agent in a test, between servers that the test speaks for."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import httpx
from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import BaseModel

from nemo_gym.serve.local_response import LocalResponse

AGENT = "agent"


def reply(content: object, status: int = 200, **cookies: str) -> LocalResponse:
    """What a server answers: text as it is, anything else as JSON."""
    body = content if isinstance(content, str) else json.dumps(content)
    headers = [(b"set-cookie", f"{name}={value}; Path=/".encode()) for name, value in cookies.items()]
    return LocalResponse(method="POST", url="http://x/", status=status, raw_headers=headers, body=body.encode())


class Surroundings(ABC):
    """The servers around an agent. `calls` are those of all of them, by (server, path) in order, and `sent` the options
    of each, with `json` as data.

    `config` are the agent's own fields; it is named `agent`, and what it posts to itself it answers itself.
    """

    agent: Any
    app: FastAPI

    def __init__(self, agent: type[BaseModel], *, observed: bool = False, **config: Any) -> None:
        self.calls: list[tuple[str, str]] = []
        self.sent: list[dict[str, Any]] = []
        client = MagicMock(spec=agent.model_fields["server_client"].annotation)
        client.global_config_dict = OmegaConf.create({"observability_enabled": observed})
        client.post = AsyncMock(side_effect=self.post)
        settings: Any = agent.model_fields["config"].annotation
        fields = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": AGENT, **config}
        made: Any = agent(config=settings.model_validate(fields), server_client=client)
        self.agent, self.app = made, made.setup_webserver()

    @abstractmethod
    async def answer(self, server: str, path: str, options: dict[str, Any]) -> LocalResponse:
        """What another server says to a call; `options` are those of `ServerClient.post`, with `json` as data."""

    async def request(self, path: str, body: Any, cookies: dict[str, str] | None = None) -> httpx.Response:
        """What the agent answers."""
        return await post_to(self.app, path, body, cookies)

    def to(self, server: str, path: str) -> list[dict[str, Any]]:
        """What was sent there."""
        return [sent for made, sent in zip(self.calls, self.sent, strict=True) if made == (server, path)]

    async def post(self, server_name: str, url_path: str, **options: Any) -> LocalResponse:
        """What the agent's client does."""
        body = options["json"]
        options["json"] = body.model_dump(exclude_unset=True) if isinstance(body, BaseModel) else body
        self.calls.append((server_name, url_path))
        self.sent.append(copy.deepcopy(options))
        if server_name == AGENT:
            return as_local(await self.request(url_path, options["json"], dict(options.get("cookies") or {})))
        return await self.answer(server_name, url_path, options)


async def post_to(app: FastAPI, path: str, body: Any, cookies: dict[str, str] | None = None) -> httpx.Response:
    """What an app answers over HTTP."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1", cookies=cookies) as client:
        return await client.post(path, json=body)


def as_local(answer: httpx.Response) -> LocalResponse:
    """The same as `ServerClient` gives it."""
    raw = [(name.lower().encode(), value.encode()) for name, value in answer.headers.multi_items()]
    return LocalResponse(
        method="POST", url="http://x/", status=answer.status_code, raw_headers=raw, body=answer.content
    )
