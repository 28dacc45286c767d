"""A resources server, an agent and a scripted model in one process, with an environment server before them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, TypeVar
from unittest.mock import AsyncMock, MagicMock

import httpx
from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import BaseModel

from environment_servers.single_agent_turn.app import SingleAgentTurnEnvironmentServer
from nemo_gym.base_resources_server import BaseVerifyRequest
from nemo_gym.judge import JudgeError
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.server_utils import ServerClient, SimpleServer
from resources_servers.example_single_tool_call.app import (
    SimpleWeatherResourcesServer,
    SimpleWeatherResourcesServerConfig,
)
from responses_api_agents.simple_agent import app as simple_agent
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}]
PARAMS = {"input": [{"role": "user", "content": "Weather?"}], "tools": TOOLS}
TASK_ID = {"taskset": "weather", "task_id": "1"}
EPISODE: dict[str, Any] = {
    "episode_id": {"rollout_id": "7-0", "attempt": 1},
    "task": {"task_id": TASK_ID, "task_input": {"responses_create_params": PARAMS, "task_data": {"hint": "cold"}}},
}
ROW = {"responses_create_params": PARAMS, "hint": "cold", "_ng_task_index": 7, "_ng_rollout_index": 0}
CALL = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Oslo"}'}
_PART = {"type": "output_text", "text": "Cold.", "annotations": []}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [_PART]}
RESOURCES = {"type": "resources_servers", "name": "weather"}
AGENT = {"type": "responses_api_agents", "name": "agent"}

ServerT = TypeVar("ServerT", bound=SingleAgentTurnEnvironmentServer)
Interference = Callable[[str, str], LocalResponse | None]


def turn_of(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    base = {"id": "resp", "created_at": 1.0, "model": "m", "object": "response", "output": list(output)}
    return {**base, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **fields}


def reply(content: object, status: int = 200, *cookies: str) -> LocalResponse:
    """What a server answers in place of the real one."""
    headers = [(b"set-cookie", cookie.encode()) for cookie in cookies]
    body = json.dumps(content).encode()
    return LocalResponse(method="POST", url="http://x/", status=status, raw_headers=headers, body=body)


class Weather(SimpleWeatherResourcesServer):
    """Its judge can't be asked about what is too hard."""

    async def verify(self, body: BaseVerifyRequest) -> Any:
        if (body.response.metadata or {}).get("judge"):
            raise JudgeError("no judge")
        return await super().verify(body)


class World:
    """`calls` are the posts in order, as (server, path). `interfere` may answer in a server's place, or raise."""

    def __init__(self, *turns: dict[str, Any], config: dict[str, Any] | None = None) -> None:
        self.turns = list(turns) or [turn_of(CALL), turn_of(MESSAGE)]
        self.calls: list[tuple[str, str]] = []
        self.sent: list[dict[str, Any]] = []
        self.interfere: Interference = lambda server, path: None
        self.client = MagicMock(spec=ServerClient)
        self.client.global_config_dict = OmegaConf.create(config or {})
        self.client.post = AsyncMock(side_effect=self.post)
        self.client._resolve_base_url = lambda name: f"http://{name}:1"
        weather = SimpleWeatherResourcesServerConfig(**_fields("weather"))
        agent = SimpleAgentConfig.model_validate(
            {**_fields("agent"), "model_server": {"type": "responses_api_models", "name": "policy_model"}}
        )
        self.weather = Weather(config=weather, server_client=self.client)
        self.agent = SimpleAgent(config=agent, server_client=self.client)
        self.apps = {"weather": _app(self.weather), "agent": _app(self.agent)}

    def server(self, cls: type[ServerT], **fields: Any) -> ServerT:
        base = {**_fields("env"), "resources_server": RESOURCES, "agent_server": AGENT}
        transports = {"resources_tool_transports": ["direct_http"]}
        config: Any = cls.model_fields["config"].annotation
        return cls(config=config.model_validate({**base, **transports, **fields}), server_client=self.client)

    async def post(self, server_name: str, url_path: str, **options: Any) -> LocalResponse:
        body = options["json"]
        body = body.model_dump(exclude_unset=True) if isinstance(body, BaseModel) else body
        self.calls.append((server_name, url_path))
        self.sent.append(copy.deepcopy({**options, "json": body}))
        answer = self.interfere(server_name, url_path)
        if answer is not None:
            return answer
        if server_name == "policy_model":
            return reply(self.turns.pop(0) if len(self.turns) > 1 else self.turns[0])
        return await self._ask(self.apps[server_name], url_path, body, options)

    async def http_request(self, method: str, url: str, **options: Any) -> LocalResponse:
        """A tool call by URL."""
        server, _, path = url.removeprefix("http://").partition(":1")
        self.calls.append((server, f"{method} {path}"))
        self.sent.append(copy.deepcopy(options))
        return await self._ask(self.apps[server], path, options["json"], options)

    async def _ask(self, app: FastAPI, path: str, body: Any, options: dict[str, Any]) -> LocalResponse:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        cookies = "; ".join(f"{name}={value}" for name, value in (options.get("cookies") or {}).items())
        headers = {**(options.get("headers") or {}), **({"cookie": cookies} if cookies else {})}
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            answer = await client.post(path, json=body, headers=headers)
        raw = [(name.lower().encode(), value.encode()) for name, value in answer.headers.multi_items()]
        return LocalResponse(
            method="POST", url=f"http://x{path}", status=answer.status_code, raw_headers=raw, body=answer.content
        )

    def to(self, server: str, path: str) -> list[dict[str, Any]]:
        return [sent for made, sent in zip(self.calls, self.sent, strict=True) if made == (server, path)]

    def closed(self) -> list[str]:
        """Whose sessions were closed, in order."""
        return [server for server, path in self.calls if path.endswith("close") or path == "/close_session"]


def install(world: World, monkeypatch: Any) -> World:
    """Have the agent's tool calls by URL arrive in the world."""
    monkeypatch.setattr(simple_agent, "http_request", world.http_request)
    return world


def _fields(name: str) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": name}


def _app(server: SimpleServer) -> FastAPI:
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return app
