from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from environment_servers.single_agent_turn.app import SingleAgentTurnEnvironmentServer
from environment_servers.single_agent_turn.tests.world import (
    AGENT,
    CALL,
    EPISODE,
    MESSAGE,
    PARAMS,
    World,
    install,
    reply,
    turn_of,
)
from nemo_gym import server_utils
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.server_utils import SimpleServer
from nemo_gym.single_agent_turn_types import SingleAgentTurnRequest, SingleAgentTurnResponse

AGENT_PATH = "/ng-rollout/7-0-a1/v1/responses"
WHOLE_TURN = [
    ("weather", "/seed_session"),
    ("agent", "/v1/agent_sessions"),
    ("agent", AGENT_PATH),
    ("policy_model", AGENT_PATH),
    ("weather", "POST /get_weather"),
    ("policy_model", AGENT_PATH),
    ("agent", "/v1/agent_sessions/close"),
    ("weather", "/verify"),
    ("weather", "/close_session"),
]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return install(World(), monkeypatch)


async def run(world: World, **fields: Any) -> SingleAgentTurnResponse:
    server = world.server(SingleAgentTurnEnvironmentServer, **fields)
    return await server.run_request(SingleAgentTurnRequest.model_validate(EPISODE))


async def failure_of(world: World, **fields: Any) -> Any:
    response = await run(world, **fields)
    assert response.result is None and response.failure is not None
    return response.failure


# --- a turn that goes well --------------------------------------------------------------------------------------------


async def test_a_turn_opens_responds_closes_and_verifies(world: World) -> None:
    response = await run(world)
    assert response.failure is None and response.result is not None
    assert response.result.reward == 1.0
    assert world.calls == WHOLE_TURN
    (seed,) = world.to("weather", "/seed_session")
    assert seed["json"]["task_data"] == {"hint": "cold"}
    assert seed["json"]["resources_session_id"].startswith("resources-session-")
    observed = response.result.ng_agent_observations
    assert observed is not None and [record.kind for record in observed.records] == ["agent_invocation", "tool_call"]


async def test_the_agent_reaches_the_tools_with_the_environment_s_cookies(world: World) -> None:
    await run(world)
    (agent_seed,) = world.to("agent", "/v1/agent_sessions")
    (access,) = agent_seed["json"]["tool_accesses"]
    assert (access["kind"], access["name"], access["required"]) == ("direct_http", "weather.direct_http", True)
    assert access["base_url"].rstrip("/") == "http://weather:1"
    cookie = access["cookies"]["Weather___weather"]
    assert world.to("weather", "POST /get_weather")[0]["cookies"] == {"Weather___weather": cookie}
    assert world.to("weather", "/verify")[0]["cookies"] == {"Weather___weather": cookie}
    assert list(world.to("agent", AGENT_PATH)[0]["cookies"]) == ["SimpleAgent___agent"]


async def test_the_verifier_gets_the_cookies_the_agent_leaves_behind(world: World) -> None:
    def interfere(server: str, path: str) -> LocalResponse | None:
        if path != "/v1/agent_sessions/close":
            return None
        session_id = world.sent[-1]["json"]["agent_session_id"]
        return reply({"agent_session_id": session_id, "resources_cookies": {"moved": "1"}})

    world.interfere = interfere
    assert (await run(world)).failure is None
    for path in ("/verify", "/close_session"):
        assert list(world.to("weather", path)[0]["cookies"]) == ["Weather___weather", "moved"]


async def test_the_verifier_gets_the_task_s_data_and_the_response_as_it_came(world: World) -> None:
    world.turns = [turn_of({**MESSAGE, "invented": {"kept": None}})]
    await run(world)
    (verify,) = world.to("weather", "/verify")
    assert list(verify["json"]) == ["hint", "responses_create_params", "response"]
    assert verify["json"]["responses_create_params"] == PARAMS
    assert verify["json"]["response"]["output"][0]["invented"] == {"kept": None}


@pytest.mark.parametrize("all_agents", [True, False])
async def test_the_agent_is_told_of_token_capture(monkeypatch: pytest.MonkeyPatch, all_agents: bool) -> None:
    config = {"token_id_capture": {"enabled": True, "all_agents": all_agents}}
    world = install(World(turn_of(MESSAGE), config=config), monkeypatch)
    await run(world)
    captured = "/ng-rollout/7-0-a1/training-token-capture/v1/responses"
    assert world.calls[2] == ("agent", captured if all_agents else AGENT_PATH)


async def test_without_a_transport_the_agent_gets_no_tools(world: World) -> None:
    world.turns = [turn_of(MESSAGE)]
    await run(world, resources_tool_transports=[])
    assert world.to("agent", "/v1/agent_sessions")[0]["json"]["tool_accesses"] == []


def _seed_answer(world: World, **fields: Any) -> LocalResponse:
    session_id = world.sent[-1]["json"]["resources_session_id"]
    return reply({"resources_session_id": session_id, **fields}, 200, "sid=1; Path=/")


TOOLS = {"server_name": "weather", "url_path": "/mcp", "transport": "http", "headers": {"X-Token": "t"}}


async def test_tools_over_mcp_are_offered_with_their_token(world: World) -> None:
    world.turns = [turn_of(MESSAGE)]
    world.interfere = lambda _, path: _seed_answer(world, resources_tools=TOOLS) if path == "/seed_session" else None
    assert (await run(world, resources_tool_transports=["direct_http", "mcp"])).failure is None
    direct, mcp = world.to("agent", "/v1/agent_sessions")[0]["json"]["tool_accesses"]
    assert (direct["required"], mcp["required"]) == (False, False)
    assert (mcp["name"], mcp["connection"]["url"]) == ("weather.mcp", "http://weather:1/mcp")
    assert mcp["connection"]["headers"] == {"X-Token": "t"}


@pytest.mark.parametrize("tools", [None, {**TOOLS, "transport": "stdio"}])
async def test_tools_over_mcp_that_are_not_offered_are_a_failure(world: World, tools: Any) -> None:
    world.interfere = lambda _, path: _seed_answer(world, resources_tools=tools) if path == "/seed_session" else None
    failure = await failure_of(world, resources_tool_transports=["mcp"])
    assert (failure.stage, failure.terminal) == ("seed", True) and "MCP" in failure.failure_reason
    assert world.closed() == ["weather"]


async def test_the_sandbox_of_the_environment_is_passed_on(world: World) -> None:
    sandbox = {"connection": {"provider_config_ref": "box", "descriptor": {"id": 1}}, "workdir": "/w"}
    world.interfere = lambda _, path: _seed_answer(world, sandbox_access=sandbox) if path == "/seed_session" else None
    failure = await failure_of(world)
    assert failure.stage == "agent" and "sandbox" in failure.failure_reason
    sent = world.to("agent", "/v1/agent_sessions")[0]["json"]["sandbox_access"]
    assert sent["connection"]["provider_config_ref"] == "box"


# --- failures ---------------------------------------------------------------------------------------------------------

STAGES = [
    ("weather", "/seed_session", "seed", ["weather"]),
    ("agent", "/v1/agent_sessions", "agent", ["agent", "weather"]),
    ("agent", AGENT_PATH, "agent", ["agent", "weather"]),
    ("agent", "/v1/agent_sessions/close", "cleanup", ["agent", "agent", "weather"]),
    ("weather", "/verify", "verification", ["agent", "weather"]),
]


@pytest.mark.parametrize(("server", "path", "stage", "closed"), STAGES)
@pytest.mark.parametrize(("status", "terminal"), [(400, True), (408, False), (425, False), (429, False), (503, False)])
async def test_an_error_of_a_server_ends_the_turn_and_everything_is_closed(
    world: World, server: str, path: str, stage: str, closed: list[str], status: int, terminal: bool
) -> None:
    world.interfere = lambda name, called: reply("went wrong", status) if (name, called) == (server, path) else None
    failure = await failure_of(world)
    assert (failure.stage, failure.terminal) == (stage, terminal)
    assert str(status) in failure.failure_reason and "went wrong" in failure.failure_reason
    assert world.closed() == closed
    assert bool(failure.partial_response) == (stage in ("cleanup", "verification"))


ERRORS: list[tuple[Exception, bool]] = [
    (aiohttp.ServerDisconnectedError(), False),
    (aiohttp.ClientPayloadError(), False),
    (TimeoutError(), False),
    (LookupError("?"), True),
]


@pytest.mark.parametrize(("error", "terminal"), ERRORS)
async def test_connection_errors_may_be_tried_again(world: World, error: Exception, terminal: bool) -> None:
    def interfere(server: str, path: str) -> None:
        if path == AGENT_PATH and server == "agent":
            raise error

    world.interfere = interfere
    failure = await failure_of(world)
    assert (failure.stage, failure.terminal) == ("agent", terminal)


@pytest.mark.parametrize("cookies", [(), ("sid=1",)])
async def test_a_seed_needs_a_cookie_and_the_same_id(world: World, cookies: tuple[str, ...]) -> None:
    def interfere(server: str, path: str) -> LocalResponse | None:
        session_id = "another" if cookies else world.sent[-1]["json"].get("resources_session_id")
        return reply({"resources_session_id": session_id}, 200, *cookies) if path == "/seed_session" else None

    world.interfere = interfere
    failure = await failure_of(world)
    assert (failure.stage, failure.terminal) == ("seed", True)
    assert ("another" if cookies else "cookie") in failure.failure_reason


@pytest.mark.parametrize("garbage", [[], {}, {"output": None}])
async def test_what_is_no_response_is_the_agent_s_failure(world: World, garbage: Any) -> None:
    world.interfere = lambda server, path: reply(garbage) if (server, path) == ("agent", AGENT_PATH) else None
    assert (await failure_of(world)).stage == "agent"


async def test_a_close_that_fails_once_or_twice_takes_back_no_verdict(world: World) -> None:
    world.interfere = lambda _, path: reply("busy", 500) if path == "/close_session" else None
    response = await run(world)
    assert response.result is not None and response.result.reward == 1.0
    assert world.closed() == ["agent", "weather", "weather"]


async def test_a_verdict_whose_judge_failed_is_no_result(world: World) -> None:
    world.turns = [turn_of(CALL), turn_of(MESSAGE, metadata={"judge": "1"})]
    failure = await failure_of(world)
    assert (failure.stage, failure.failure_kind, failure.terminal) == ("verification", "judge_failed", False)
    assert "no judge" in failure.failure_reason and failure.partial_response is not None


async def test_a_turn_that_takes_too_long_is_cleaned_up(world: World) -> None:
    real = world.post

    async def post(server_name: str, url_path: str, **options: Any) -> LocalResponse:
        if (server_name, url_path) == ("agent", AGENT_PATH):
            await asyncio.Event().wait()
        return await real(server_name, url_path, **options)

    world.client.post.side_effect = post
    failure = await failure_of(world, default_episode_timeout_seconds=0.05)
    assert not failure.terminal and world.closed() == ["agent", "weather"]


# --- the server -------------------------------------------------------------------------------------------------------


def test_it_answers_over_http(world: World) -> None:
    client = TestClient(world.server(SingleAgentTurnEnvironmentServer).setup_webserver())
    answer = client.post("/run", json=EPISODE).json()
    assert answer["episode_id"] == EPISODE["episode_id"] and answer["result"]["reward"] == 1.0
    responses = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 0.5}]
    metrics = client.post("/aggregate_metrics", json={"verify_responses": responses}).json()
    assert metrics["key_metrics"]["mean/reward"] == 0.5
    assert world.calls[-1] == ("weather", "/aggregate_metrics")


def test_settings_it_does_not_have_are_refused(world: World) -> None:
    with pytest.raises(ValidationError, match="unheard_of"):
        world.server(SingleAgentTurnEnvironmentServer, unheard_of=1)
    with pytest.raises(ValidationError, match="resources_tool_transports"):
        world.server(SingleAgentTurnEnvironmentServer, resources_tool_transports=["pigeon"])
    assert world.server(SingleAgentTurnEnvironmentServer).config.agent_server.model_dump() == AGENT


def test_a_worker_that_imports_the_file_gets_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    from environment_servers.single_agent_turn import app

    monkeypatch.setattr(server_utils, "is_nemo_gym_fastapi_entrypoint", lambda file: file == app.__file__)
    monkeypatch.setattr(SimpleServer, "run_webserver", classmethod(lambda cls: cls.__name__))
    spec = util.spec_from_file_location("single_agent_turn_worker", app.__file__)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.app == "SingleAgentTurnEnvironmentServer"
