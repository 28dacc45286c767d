from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from nemo_gym.mcp_auto_exposure import TOKEN_HEADER, maybe_auto_expose
from nemo_gym.serve.uvicorn_server import ServingOptions, UvicornServer
from nemo_gym.server_utils import ServerClient
from resources_servers.example_mcp_weather.app import (
    ExampleMCPWeatherResourcesServer,
    ExampleMCPWeatherResourcesServerConfig,
    ExampleMCPWeatherVerifyRequest,
)
from resources_servers.example_mcp_weather.task_data import TaskData

DATA = Path(__file__).parents[1] / "data"
ROWS = [json.loads(line) for line in (DATA / "example.jsonl").read_text().splitlines()]
NAME = "example_mcp_weather"


def app_of(*, over_mcp: bool = True) -> FastAPI:
    config = ExampleMCPWeatherResourcesServerConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name=NAME, expose_tools_over_mcp=over_mcp
    )
    server = ExampleMCPWeatherResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    app = server.setup_webserver()
    assert (maybe_auto_expose(server, app) is not None) is over_mcp
    return app


@pytest.fixture
def client() -> TestClient:
    return TestClient(app_of())


def answer(*texts: str, tool: str | None = None) -> dict[str, Any]:
    """A response that says these texts, in one message each, after a call of a tool if one is named."""
    call = {"type": "function_call", "call_id": "c1", "name": tool, "arguments": "{}"}
    parts = [[{"type": "output_text", "text": text, "annotations": []}] for text in texts]
    messages = [
        {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
        for content in parts
    ]
    return {
        "id": "resp",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [*([call] if tool else []), *messages],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def seed(client: TestClient, city: str = "Oslo") -> dict[str, Any]:
    body = {"responses_create_params": {"input": "?"}, "verifier_metadata": {"expected_city": city}}
    reply = client.post("/seed_session", json=body)
    assert reply.status_code == 200
    found: dict[str, Any] = reply.json()
    return found


def verdict(client: TestClient | httpx.Client, *texts: str, **row: Any) -> dict[str, Any]:
    body = {"responses_create_params": {"input": "?"}, "response": answer(*texts), **row}
    found: dict[str, Any] = client.post("/verify", json=body).json()
    return found


# --- the tool as a route ----------------------------------------------------------------------------------------------


def test_the_weather_of_the_right_city_is_asked_and_told(client: TestClient) -> None:
    seed(client, "Oslo")
    reply = client.post("/get_weather", json={"city": "oSLO"})
    assert reply.json() == {"weather": "The weather in oSLO is sunny and 72 F."}
    found = verdict(client, "Well: the WEATHER in Oslo is sunny and 72 f.")
    assert (found["reward"], found["tool_call_seen"], found["final_response_mentions_weather"]) == (1.0, True, True)
    assert found["expected_weather"] == "The weather in Oslo is sunny and 72 F."


@pytest.mark.parametrize(
    ("asked", "said", "seen", "mentioned"),
    [
        ("Oslo", "It is nice.", True, False),
        ("Rome", "The weather in Oslo is sunny and 72 F.", False, True),
        (None, "The weather in Oslo is sunny and 72 F.", False, True),
        ("Oslo", "", True, False),
    ],
)
def test_half_of_it_earns_nothing(
    client: TestClient, asked: str | None, said: str, seen: bool, mentioned: bool
) -> None:
    seed(client, "Oslo")
    if asked:
        client.post("/get_weather", json={"city": asked})
    found = verdict(client, said)
    assert (found["reward"], found["tool_call_seen"], found["final_response_mentions_weather"]) == (
        0.0,
        seen,
        mentioned,
    )


def test_another_session_asked_for_nothing() -> None:
    app = app_of()
    asking, other = TestClient(app), TestClient(app)
    for one in (asking, other):
        seed(one, "Oslo")
    asking.post("/get_weather", json={"city": "Oslo"})
    sentence = "The weather in Oslo is sunny and 72 F."
    assert (verdict(other, sentence)["reward"], verdict(asking, sentence)["reward"]) == (0.0, 1.0)


def test_the_tool_works_without_a_seed_and_the_row_says_the_city(client: TestClient) -> None:
    sentence = "The weather in Paris is sunny and 72 F."
    assert verdict(client, sentence, verifier_metadata={"expected_city": "Rome"})["expected_weather"].startswith(
        "The weather in Rome"
    )
    client.post("/get_weather", json={"city": "Paris"})
    assert verdict(client, "It is so:", sentence)["reward"] == 1.0


def test_parts_are_joined_by_lines_and_unknown_fields_come_back(client: TestClient) -> None:
    seed(client, "Oslo")
    client.post("/get_weather", json={"city": "Oslo"})
    found = verdict(client, "The weather in Oslo", "is sunny and 72 F.", mark=7)
    assert (found["reward"], found["mark"]) == (0.0, 7)


def test_an_episode_may_be_seeded_again() -> None:
    client = TestClient(app_of())
    body = {
        "resources_session_id": "s",
        "episode_id": {"rollout_id": "e", "attempt": 0},
        "task_id": {"taskset": "w", "task_id": "t"},
        "task_data": {"verifier_metadata": {"expected_city": "Oslo"}},
    }
    tools = client.post("/seed_session", json=body).json()["resources_tools"]
    assert tools["server_name"] == NAME and tools["headers"][TOKEN_HEADER]
    client.post("/get_weather", json={"city": "Oslo"})
    assert client.post("/seed_session", json=body).status_code == 200
    assert verdict(client, "The weather in Oslo is sunny and 72 F.")["reward"] == 1.0
    close = {name: body[name] for name in ("resources_session_id", "episode_id")}
    assert client.post("/close_session", json=close).status_code == 200
    assert client.post("/seed_session", json=body).status_code == 410


def test_without_the_line_in_the_config_there_is_no_mcp() -> None:
    client = TestClient(app_of(over_mcp=False))
    assert seed(client) == {}
    assert client.post("/mcp", json={}).status_code == 404


# --- the tool over MCP ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """The base URL of the app on a loopback port."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    port: int = sock.getsockname()[1]
    ready = asyncio.Event()
    server = UvicornServer(ServingOptions("127.0.0.1", port).uvicorn_config(app), on_ready=lambda _: ready.set())
    running = asyncio.create_task(server._serve([sock]))
    await ready.wait()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def mcp_client(url: str, headers: dict[str, str] | None = None) -> AsyncIterator[ClientSession]:
    async with (
        httpx.AsyncClient(headers=headers) as http,
        streamable_http_client(f"{url}/mcp", http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


async def test_a_rollout_over_mcp_with_the_official_client() -> None:
    async with served(app_of()) as url, httpx.AsyncClient(base_url=url) as http:
        body = {"responses_create_params": {"input": "?"}, "verifier_metadata": {"expected_city": "Oslo"}}
        seeded = (await http.post("/seed_session", json=body)).json()["mcp"]
        assert (seeded["server_name"], seeded["url_path"], seeded["transport"]) == (NAME, "/mcp", "http")
        async with mcp_client(url, seeded["headers"]) as session:
            (tool,) = (await session.list_tools()).tools
            assert (tool.name, tool.description) == ("get_weather", "Look up the weather in a city.")
            assert tool.inputSchema["required"] == ["city"]
            result = await session.call_tool("get_weather", {"city": "Oslo"})
        sentence = "The weather in Oslo is sunny and 72 F."
        assert not result.isError and result.structuredContent == {"weather": sentence}
        assert json.loads(text_of(result)) == {"weather": sentence}
        spoken = answer(sentence, tool=f"mcp__{NAME}__get_weather")
        found = (await http.post("/verify", json={**body, "response": spoken})).json()
    assert found["reward"] == 1.0
    assert found["response"]["output"][0]["name"] == f"mcp__{NAME}__get_weather"


async def test_a_call_without_a_token_is_an_error() -> None:
    async with served(app_of()) as url, mcp_client(url) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["get_weather"]
        result = await session.call_tool("get_weather", {"city": "Oslo"})
    assert result.isError and TOKEN_HEADER in text_of(result)


# --- data -------------------------------------------------------------------------------------------------------------


def test_example_rows_name_their_city_and_offer_the_tool() -> None:
    assert len(ROWS) == 5
    for row in ROWS:
        assert list(row) == ["responses_create_params", "verifier_metadata"]
        (tool,) = row["responses_create_params"]["tools"]
        assert (tool["type"], tool["name"], tool["strict"]) == ("function", "get_weather", True)
        city = TaskData.model_validate(row["verifier_metadata"]).expected_city
        assert city in row["responses_create_params"]["input"][1]["content"]
        ExampleMCPWeatherVerifyRequest.model_validate({**row, "response": answer("x")})


def test_example_rollouts_are_still_judged_as_they_were() -> None:
    """Each is played again in a session of its own: the calls it made, then the verdict."""
    records = [json.loads(line) for line in (DATA / "example_rollouts.jsonl").read_text().splitlines()]
    assert len(records) == 5
    for record in records:
        client = TestClient(app_of())
        client.post("/seed_session", json=record)
        for item in record["response"]["output"]:
            if item["type"] == "function_call":
                client.post(f"/{item['name']}", json=json.loads(item["arguments"]))
        found = client.post("/verify", json=record).json()
        for name in ("reward", "expected_weather", "tool_call_seen", "final_response_mentions_weather"):
            assert found[name] == record[name]
