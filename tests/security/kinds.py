"""A small server of each kind, with everything around it that a served one has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.routing import iter_route_contexts
from omegaconf import OmegaConf
from pydantic import BaseModel
from starlette.types import ASGIApp

from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.serve.head import Head
from nemo_gym.server_utils import SimpleServer
from tests.unit.serve.test_agent import CLOSE, SEED, SessionAgent, agent_of
from tests.unit.serve.test_environment_server import REQUEST, server
from tests.unit.serve.test_model import ASK_CHAT, MESSAGES, ToyModel, model_of
from tests.unit.serve.toys import ROW, VERIFY, ToyResources, mock_client, resources_config, serving

CONFIG = OmegaConf.create({"observability_enabled": True})
PARAMS: dict[str, Any] = {"input": [{"role": "user", "content": "hi"}], "temperature": 0.5, "tools": []}
METRICS: dict[str, Any] = {
    "verify_responses": [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {"usage": {}}}]
}
MCP: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {}}}
TYPED_SEED: dict[str, Any] = {
    "resources_session_id": "s",
    "episode_id": {"rollout_id": "r"},
    "task_id": {"taskset": "t", "task_id": "1"},
    "task_data": {"a": 1},
}


class Numbers(BaseModel):
    numbers: list[int] = []
    note: str = ""


class Resources(ToyResources):
    """Has a tool of every shape that components give them."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        app.post("/raw")(self.raw)
        app.post("/named/{name}")(self.named)
        return app

    async def add(self, body: Numbers) -> dict[str, Any]:
        """Add numbers."""
        return {"sum": str(sum(body.numbers)), "note": body.note}

    async def raw(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        return {"body": body, "again": await request.json()}

    async def named(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, **body}


def assembled(made: SimpleServer) -> FastAPI:
    """The app as `run_webserver` would serve it; nothing is done to this process."""
    made.__dict__.update(prefix_server_logs=lambda: None, set_ulimit=lambda: None)
    return made._assemble(CONFIG, is_main=False)


async def episode(cleanup: Any) -> Any:
    return "done"


@dataclass(frozen=True)
class Kind:
    """`valid` maps a path to a body that is answered with 200; `alive` is a path that needs none."""

    name: str
    app: ASGIApp
    valid: dict[str, dict[str, Any]]
    alive: str = "/health"


def kind(name: str) -> Kind:
    if name == "resources":
        config = resources_config(expose_tools_over_mcp=True)
        toy: SimpleResourcesServer = Resources(config=config, server_client=mock_client(CONFIG))
        valid = {
            "/seed_session": TYPED_SEED,
            "/close_session": {"resources_session_id": "s", "episode_id": {"rollout_id": "r"}},
            "/verify": {**VERIFY, "extra": {"a": [1]}},
            "/ng-rollout/7-0/verify": VERIFY,
            "/aggregate_metrics": METRICS,
            "/add": {"numbers": [1, 2], "note": "n"},
            "/raw": {"a": [1]},
            "/named/x": {"a": [1]},
            "/mcp": MCP,
        }
        return Kind(name, assembled(toy), valid)
    if name == "agent":
        seeds = {"/v1/agent_sessions": SEED, "/v1/agent_sessions/close": CLOSE}
        runs = {"/run": {**ROW, "_ng_task_index": 3, "_ng_rollout_index": 1}, "/v1/responses": PARAMS}
        valid = {**runs, "/ng-rollout/7-0/v1/responses": PARAMS, "/aggregate_metrics": METRICS, **seeds}
        return Kind(name, assembled(agent_of(SessionAgent, CONFIG)), valid)
    if name == "model":
        paths = {"/v1/responses": PARAMS, "/v1/chat/completions": {**ASK_CHAT, "max_tokens": 5}}
        valid = {**paths, "/v1/messages": MESSAGES, "/ng-rollout/7-0/v1/responses": PARAMS}
        return Kind(name, assembled(model_of(ToyModel)), valid)
    if name == "environment":
        valid = {"/run": REQUEST, "/aggregate_metrics": METRICS}
        return Kind(name, assembled(server(episode)), valid)
    assert name == "head"
    head = Head(full_config=lambda: "a: secret", redacted_config=lambda: "a: '****'", token=lambda: "t", is_ready=True)
    return Kind(name, head.app(host="127.0.0.1"), {})


KINDS = ("resources", "agent", "model", "environment", "head")


@asynccontextmanager
async def served(name: str) -> AsyncIterator[tuple[Kind, httpx.AsyncClient]]:
    """A server of that kind on a socket, and a client that sends JSON."""
    one = kind(name)
    async with (
        serving(one.app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, headers=JSON_HEADERS) as client,
    ):
        yield one, client


JSON_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def paths_of(app: Any) -> Iterator[str]:
    """Every path the app answers, parameters filled in."""
    try:
        routes = [context.path or "/" for context in iter_route_contexts(app.routes)]
    except AttributeError:
        routes = [route.path for route in app.routes]
    for path in dict.fromkeys(routes):
        yield path.replace("{rollout_id}", "7-0").replace("{name}", "x").replace("{path:path}", "x")
