"""The agent in sessions of an environment server, and what it records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_responses_api_agent import AgentSeedSessionRequest
from nemo_gym.testing.agents import reply
from responses_api_agents.simple_agent import app as simple_agent
from responses_api_agents.simple_agent.recording import Recording
from responses_api_agents.simple_agent.tests.test_app import (
    ROW,
    TOOLS,
    Run,
    answered,
    call,
    message,
    outputs,
    reasoning,
    verdict,
)

ACCESS = {
    "kind": "direct_http",
    "name": "weather.direct_http",
    "required": True,
    "base_url": "http://weather:7/base/",
    "cookies": {"sid": "seeded"},
    "headers": {"X-Key": "k"},
}
MCP = {"kind": "mcp", "name": "weather.mcp", "required": True, "connection": {"url": "http://weather:7/mcp"}}
EPISODE = {"rollout_id": "7-0"}
SEED = {
    "agent_session_id": "s1",
    "episode_id": EPISODE,
    "task_id": {"taskset": "t", "task_id": "1"},
    "tool_accesses": [ACCESS],
}


class Session:
    """An open session. `tools` are the tool calls made by URL, `tool` what they are answered."""

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = run
        self.tools: list[tuple[str, dict[str, Any]]] = []
        self.tool = reply("cold", sid="moved")
        self.error: BaseException | None = None
        self.client = TestClient(run.app, raise_server_exceptions=False)
        monkeypatch.setattr(simple_agent, "http_request", self.request)

    async def request(self, method: str, url: str, **options: Any) -> Any:
        self.tools.append((f"{method} {url}", {**options, "cookies": dict(options["cookies"])}))
        if self.error is not None:
            raise self.error
        return self.tool

    def seed(self, **changes: Any) -> Any:
        return self.client.post("/v1/agent_sessions", json={**SEED, **changes})

    def respond(self, path: str = "/ng-rollout/7-0/v1/responses") -> Any:
        return self.client.post(path, json={"input": "Weather?", "tools": TOOLS})

    def close(self) -> Any:
        return self.client.post("/v1/agent_sessions/close", json={"agent_session_id": "s1", "episode_id": EPISODE})


@pytest.fixture
def open_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def opened(*turns: Any, seed: dict[str, Any] | None = None, **options: Any) -> Session:
        session = Session(Run(*turns, **options), monkeypatch)
        assert session.seed(**(seed or {})).status_code == 200
        return session

    yield opened


def test_tools_are_called_where_the_session_says(open_session: Any) -> None:
    session = open_session(reply(answered(call()), model="m1"), answered(call()), answered(message()))
    answer = session.respond()
    assert outputs(answer.json()) == ["cold", "cold"]
    (url, first), (_, second) = session.tools
    assert url == "POST http://weather:7/base/get_weather"
    assert first == {"json": {"city": "Oslo"}, "headers": {"X-Key": "k"}, "cookies": {"sid": "seeded"}}
    assert second["cookies"] == {"sid": "moved"}
    assert not session.run.to("mcqa", "/get_weather")
    assert "sid" not in answer.cookies and "_ng_trajectory" not in answer.json()


def test_cookies_of_the_model_are_set_and_those_of_the_environment_are_kept(open_session: Any) -> None:
    session = open_session(answered(call()), reply(answered(message()), model="m2"))
    assert session.respond().cookies["model"] == "m2"
    assert session.close().json()["resources_cookies"] == {"sid": "moved"}


def test_closing_tells_what_every_activation_saw(open_session: Any) -> None:
    session = open_session(answered(call()), answered(message()))
    session.respond()
    session.respond()
    closed = session.close().json()
    assert session.close().json() == closed
    bundle = closed["agent_observations"]
    assert (bundle["source"], bundle["gaps"]) == ("simple_agent", [])
    records = bundle["records"]
    assert [(record["kind"], record["invocation_id"]) for record in records] == [
        ("agent_invocation", "root"),
        ("tool_call", "root"),
        ("agent_invocation", "activation-2"),
    ]
    assert [item.get("type") for item in records[0]["conversation"]][1:] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    reference = {"type": "responses_api_models", "name": "policy_model"}
    assert records[0]["model_calls"] == [{"model_call_id": None, "model_ref": reference, "response_id": "resp"}] * 2
    assert (records[0]["status"], records[1]["status"], records[1]["tool_name"]) == (
        "completed",
        "completed",
        "get_weather",
    )


def test_closing_tells_what_could_not_be_seen(open_session: Any) -> None:
    session = open_session(answered(message(), id=""))
    session.respond()
    (gap,) = session.close().json()["agent_observations"]["gaps"]
    assert gap == {"code": "model_call_reference_unavailable", "invocation_id": "root", "detail": "turn:1"}


def test_an_activation_that_failed_is_told_too(open_session: Any) -> None:
    session = open_session(answered(call()))
    session.error = ConnectionResetError("gone")
    assert session.respond().status_code == 500
    invocation, tool = session.close().json()["agent_observations"]["records"]
    assert (invocation["status"], invocation["error_type"]) == ("failed", "ConnectionResetError")
    assert (tool["status"], tool["error_type"]) == ("failed", "ConnectionResetError")


def test_without_a_grant_there_is_no_tool_to_call(open_session: Any) -> None:
    session = open_session(answered(call()), seed={"tool_accesses": []})
    with pytest.raises(RuntimeError, match="grants agent no way to call the tool 'get_weather'"):
        TestClient(session.run.app, cookies=session.client.cookies).post(
            "/v1/responses", json={"input": "?", "tools": TOOLS}
        )


def test_calls_stay_open_without_execute_tools(open_session: Any) -> None:
    session = open_session(answered(call()), config={"execute_tools": False, "resources_server": None})
    assert [item["type"] for item in session.respond().json()["output"]] == ["function_call"]
    assert session.client.post("/run", json=ROW).status_code == 500


def test_after_closing_there_is_no_activation(open_session: Any) -> None:
    session = open_session(answered(message()))
    session.close()
    assert session.respond().status_code == 409


REFUSED = [
    ({"sandbox_access": {"connection": {"provider_config_ref": "b", "descriptor": {}}, "workdir": "/"}}, "sandbox"),
    ({"tool_accesses": [MCP]}, "weather.mcp"),
    ({"tool_accesses": [ACCESS, {**ACCESS, "name": "other"}]}, "weather.direct_http, other"),
]


@pytest.mark.parametrize(("change", "told"), REFUSED)
async def test_what_it_cannot_do_is_refused(change: dict[str, Any], told: str) -> None:
    body = AgentSeedSessionRequest.model_validate({**SEED, **change})
    with pytest.raises(ValueError, match=told):
        await Run().agent._seed_agent_session_state(body)


def test_optional_tools_over_mcp_are_left_alone(open_session: Any) -> None:
    session = open_session(answered(message()), seed={"tool_accesses": [ACCESS, {**MCP, "required": False}]})
    assert session.respond().status_code == 200


def test_the_session_s_access_replaces_the_configured_one(open_session: Any) -> None:
    configured = {**ACCESS, "base_url": "http://configured:1"}
    session = open_session(answered(call()), answered(message()), config={"tool_accesses": [configured]})
    session.respond()
    assert session.tools[0][0] == "POST http://weather:7/base/get_weather"


def test_several_workers_cannot_keep_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(Run(config={"num_workers": 2}), monkeypatch)
    with pytest.raises(ValueError, match="num_workers=1"):
        TestClient(session.run.app).post("/v1/agent_sessions", json=SEED)


# --- trajectories -----------------------------------------------------------------------------------------------------

OBSERVED_ROW = {**ROW, "_ng_task_index": 7, "_ng_rollout_index": 0}


async def rolled_out(*turns: Any, row: dict[str, Any] | None = None, **fields: Any) -> tuple[Run, dict[str, Any]]:
    run = Run(*turns, observability=True, get_weather=reply("cold", status=201), verify=verdict(**fields))
    answer = await run.request("/run", {**OBSERVED_ROW, **(row or {})})
    assert answer.status_code == 200, answer.text
    return run, answer.json()


async def test_an_observed_rollout_has_a_trajectory() -> None:
    first = answered(reasoning(), call())
    run, result = await rolled_out(first, answered(message(), id=""), resolved=True)
    trajectory = result["ng_trajectory"]
    assert (trajectory["schema_version"], trajectory["task_id"], trajectory["rollout_id"]) == ("1.0", "7", "7-0")
    one, two = trajectory["turns"]
    assert (one["turn_no"], one["task_id"], one["rollout_id"], one["step_count"]) == (1, "7", "7-0", 0)
    assert one["question"] == [{"role": "user", "content": "?"}]
    assert [item["type"] for item in one["answer"]] == ["function_call"]
    assert [item["type"] for item in one["reasoning_content"]] == ["reasoning"]
    assert one["model_calls"][0]["response_id"] == "resp" and one["resolved"] is None
    assert (two["turn_no"], two["step_count"], two["reasoning_content"], two["resolved"]) == (2, 1, None, True)
    assert len(two["question"]) == 4 and two["model_calls"] == []
    assert trajectory["gaps"] == [
        {"code": "model_call_reference_unavailable", "invocation_id": "root", "detail": "turn:2"}
    ]
    (tool,) = trajectory["tool_calls"]
    assert (tool["tool_name"], tool["output"], tool["status"]) == ("get_weather", "cold", "completed")
    assert tool["timing_source"] == "executor" and tool["duration_ms"] >= 0
    (invocation,) = trajectory["invocations"]
    assert (invocation["invocation_id"], invocation["status"]) == ("root", "completed")
    assert len(invocation["conversation"]) == 5
    assert "_ng_trajectory" not in run.to("mcqa", "/verify")[0]["json"]["response"]


@pytest.mark.parametrize("fields", [{}, {"resolved": None}, {"resolved": 1}])
async def test_an_unknown_resolution_is_a_gap(fields: dict[str, Any]) -> None:
    _, result = await rolled_out(answered(message()), **fields)
    assert [gap["code"] for gap in result["ng_trajectory"]["gaps"]] == ["resolution_unavailable"]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"task_id": "a", "problem_id": "b"}, "a"),
        ({"problem_id": 3, "instance_id": "c"}, "3"),
        ({"task_id": None}, "7"),
    ],
)
async def test_the_task_is_called_by_its_own_name(row: dict[str, Any], name: str) -> None:
    _, result = await rolled_out(answered(message()), row=row)
    assert result["ng_trajectory"]["task_id"] == name == result["ng_trajectory"]["turns"][0]["task_id"]


async def test_calls_that_fail_or_are_refused_are_told_apart() -> None:
    turn = answered(call(), call(name="other", call_id="c2"), call("{", call_id="c3"))
    run = Run(turn, answered(message()), observability=True, get_weather=reply("no", status=404), verify=verdict())
    result = (await run.request("/run", OBSERVED_ROW)).json()
    calls = result["ng_trajectory"]["tool_calls"]
    assert [call["status"] for call in calls] == ["failed"] * 3
    assert [call["error_type"] for call in calls] == ["http_404", "RefusedToolCall", "JSONDecodeError"]


async def test_what_is_too_long_to_be_read_is_not_kept() -> None:
    answer: dict[str, Any] = {"get_weather": reply("x" * 2_001), "config": {"max_tool_output_bytes": 2_000}}
    run = Run(answered(call()), answered(message()), observability=True, verify=verdict(), **answer)
    result = (await run.request("/run", OBSERVED_ROW)).json()
    (tool,) = result["ng_trajectory"]["tool_calls"]
    assert (tool["status"], tool["error_type"]) == ("failed", "ToolOutputTooLarge")
    assert "has 2,001 bytes" in tool["output"] and "xxx" not in str(result)


@pytest.mark.parametrize("turns", [[answered(call())], [answered(reasoning())]])
async def test_a_loop_that_was_cut_short_is_incomplete(turns: list[dict[str, Any]]) -> None:
    run = Run(*turns, observability=True, config={"max_steps": 1}, get_weather=reply("x"), verify=verdict())
    result = (await run.request("/run", OBSERVED_ROW)).json()
    assert result["ng_trajectory"]["invocations"][0]["status"] == "incomplete"


async def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    run = Run(answered(message()), verify=verdict(resolved=True))
    assert "ng_trajectory" not in (await run.request("/run", OBSERVED_ROW)).json()
    observed = Run(answered(message()), observability=True)
    assert "_ng_trajectory" not in await observed.respond()
    answer = await observed.request("/ng-rollout/7-0/v1/responses", {"input": "?"})
    assert answer.json()["_ng_trajectory"]["task_id"] == "unknown"


async def test_a_verifier_that_is_skipped_keeps_the_trajectory() -> None:
    run = Run(answered(message()), observability=True, config={"skip_verification": True})
    result = (await run.request("/run", OBSERVED_ROW)).json()
    assert result["verification_skipped"] is True and len(result["ng_trajectory"]["turns"]) == 1


def test_an_item_nobody_can_read_back_costs_only_the_conversation() -> None:
    recording = Recording("root", Run().agent.config.model_server)
    assert recording.invocation("completed", [{"type": "from_the_future"}]).conversation == []
    assert [gap.code for gap in recording.gaps] == ["conversation_unavailable"]
