"""B74, B105: a model calls the tools of its row; no name leads anywhere else, also none that a row offers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.serve import local
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
from tests.security.kinds import assembled, kind
from tests.unit.serve.test_model import MESSAGE, ToyModel
from tests.unit.serve.toys import RESPONSE, client_of, config_of

NAMES = (
    "verify",
    "seed_session",
    "close_session",
    "aggregate_metrics",
    "reverify_mode",
    "run",
    "mcp",
    "stats",
    "../x",
    "../verify",
    "a/../verify",
    "./verify",
    "//verify",
    "/verify",
    "verify/",
    "verify?",
    "verify?x=1",
    "verify#",
    "openapi.json?",
    "docs",
    "#",
    "?",
    "",
    " ",
    ".",
    "..",
    "verify\n",
    "verify\x00",
    "verify ",
    " verify",
    "VERIFY",
    "%76erify",
    "verif%79",
    "..%2fverify",
    "%2e%2e/verify",
    "%252fverify",
    "a%2F..%2Fverify",
    "\uff56erify",
    "v\u0435rify",
    "verify\u200b",
    "\u2024\u2024/verify",
    "\ufb01",
    "mcp/x",
    "mcp/../verify",
    "ng-rollout/7-0/verify",
    "/ng-rollout/7-0/seed_session",
    "http://127.0.0.1:1/verify",
    "//evil.example/verify",
    "x" * 100_000,
)
CLOSED = {"/verify", "/seed_session", "/close_session", "/aggregate_metrics", "/reverify_mode", "/run"}


class Caller(ToyModel):
    """Calls each of the names once, then ends."""

    names: list[str] = []

    async def responses(self, request: Any, body: Any) -> Any:  # type: ignore[override]
        calls = [
            {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": '{"reward": 1}'}
            for number, name in enumerate(self.names)
        ]
        has_called = any(getattr(item, "type", "") == "function_call_output" for item in body.input)
        return {**RESPONSE, "output": [MESSAGE] if has_called else calls}


class Noting:
    """An app that notes what reaches it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await self.app(scope, receive, send)


@asynccontextmanager
async def agent_with(names: list[str]) -> AsyncIterator[tuple[httpx.AsyncClient, Noting]]:
    """An agent, its model and its resources server in this process; requests to the last are noted."""
    from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig
    from nemo_gym.config_types import ModelServerRef, ResourcesServerRef

    tools = Noting(kind("resources").app)
    client = client_of(config_of(("toy", "resources_servers", 2), ("policy", "responses_api_models", 3)))
    settings = {"host": "127.0.0.1", "port": 3, "entrypoint": "", "name": "policy"}
    model = Caller(config=BaseResponsesAPIModelConfig.model_validate(settings), server_client=client, names=names)
    agent = SimpleAgent(
        config=SimpleAgentConfig(
            host="127.0.0.1",
            port=1,
            entrypoint="",
            name="agent",
            resources_server=ResourcesServerRef(type="resources_servers", name="toy"),
            model_server=ModelServerRef(type="responses_api_models", name="policy"),
        ),
        server_client=client,
    )
    served = [
        local.register("toy", "http://127.0.0.1:2", tools),
        local.register("policy", "http://127.0.0.1:3", assembled(model)),
    ]
    transport = httpx.ASGITransport(app=assembled(agent))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as http:
            yield http, tools
    finally:
        for server in served:
            local.unregister(server)


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {}, "strict": False}


async def outputs(http: httpx.AsyncClient, offered: list[str]) -> list[str]:
    body = {"input": [{"role": "user", "content": "hi"}], "tools": [function(name) for name in offered]}
    reply = await http.post("/v1/responses", json=body)
    assert reply.status_code == 200, reply.text
    return [item["output"] for item in reply.json()["output"] if item["type"] == "function_call_output"]


async def test_names_that_the_row_does_not_offer_are_never_called() -> None:
    async with agent_with(list(NAMES)) as (http, tools):
        told = await outputs(http, ["add"])
        assert len(told) == len(NAMES)
        for name, output in zip(NAMES, told, strict=True):
            assert "There is no tool" in output and "The tools are: add." in output and len(output) < 1_000, name
        assert tools.paths == []


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:30]))
async def test_a_row_that_offers_such_a_name_opens_nothing(name: str) -> None:
    async with agent_with([name]) as (http, tools):
        (output,) = await outputs(http, [name, "add"])
        # `run` is a fair name for a tool, which this server doesn't have; others are told that there is none such.
        assert not CLOSED.intersection(tools.paths) or (name == "run" and output == '{"detail":"Not Found"}')
        assert not any(path.startswith("/mcp") for path in tools.paths)
        assert '"reward"' not in output


async def test_the_tools_of_the_row_are_called() -> None:
    async with agent_with(["add", "named"]) as (http, tools):
        told = await outputs(http, ["add"])
        assert told[0] == '{"sum":"0","note":""}' and "There is no tool 'named'" in told[1]
        assert tools.paths == ["/add"]
