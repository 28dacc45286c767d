from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from nemo_gym.testing.responses import call, call_output, message, reasoning, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    verified,
)
from resources_servers.example_tool_call_multireward.app import ToolCallMultiRewardResourcesServer

FOLDER = Path(__file__).parents[1]
OSLO = {"name": "get_weather", "arguments": {"city": "Oslo"}}
OSLO_CALL, ROME_CALL = (call("get_weather", {"city": city}) for city in ("Oslo", "Rome"))
DECLARED, STRICT = {"declared_tools_only": True}, {"strict_types": True}


def tool(name: str, *required: str) -> dict[str, Any]:
    parameters = {"type": "object", "required": list(required)}
    return {"type": "function", "name": name, "parameters": parameters, "strict": True}


TOOLS = [tool("get_weather", "city"), tool("get_time")]


def asked(*output: Any, expected: Any = OSLO, tools: Any = TOOLS) -> dict[str, Any]:
    prompt = {"input": [{"role": "user", "content": "?"}], "tools": tools}
    return verify_request({"responses_create_params": prompt, "expected_call": expected}, *output)


def case(name: str, request: dict[str, Any], parts: str, **settings: Any) -> Case:
    """`parts` has a 1 or 0 each for format, schema_valid and correctness."""
    values = dict(zip(("format", "schema_valid", "correctness"), map(float, parts), strict=True))
    return Case(name, request, sum(values.values()), {"reward_components": values, **values}, settings)


CASES = [
    case("right", asked(OSLO_CALL), "111"),
    case("after thinking", asked(reasoning(), OSLO_CALL, call_output("sunny")), "111"),
    case("nothing", asked(), "000"),
    case("words only", asked("Sunny."), "000"),
    case("an empty message", asked(""), "000"),
    # the form
    case("words before", asked("I'll look.", OSLO_CALL), "011"),
    case("words after", asked(OSLO_CALL, "Sunny."), "011"),
    case("an empty message beside", asked(OSLO_CALL, message("")), "011"),
    case("somebody else's words", asked(OSLO_CALL, {"type": "message", "role": "user", "content": "?"}), "011"),
    case("two calls", asked(OSLO_CALL, ROME_CALL), "011"),
    case("one call twice", asked(OSLO_CALL, OSLO_CALL), "011"),
    # the arguments
    case("one is missing", asked(call("get_weather", {"town": "Oslo"})), "100"),
    case("none", asked(call("get_weather", {})), "100"),
    case("no JSON", asked(call("get_weather", "{")), "100"),
    case("no object", asked(call("get_weather", '["city"]')), "100"),
    case("a text", asked(call("get_weather", '"city"')), "100"),
    case("empty", asked(call("get_weather", "")), "100"),
    case("null for what is required", asked(call("get_weather", {"city": None})), "110"),
    case("more than required", asked(call("get_weather", {"city": "Oslo", "unit": "C"})), "111"),
    case("only the first counts", asked(call("get_weather", "{"), OSLO_CALL), "001"),
    case("a tool that requires nothing", asked(call("get_time", {})), "110"),
    case("a tool that is not there", asked(call("get_tide", {})), "110"),
    case("a tool that is not there, no JSON", asked(call("get_tide", "{")), "100"),
    case("a tool that is not there, strictly", asked(call("get_tide", {})), "100", **DECLARED),
    case("right, strictly", asked(OSLO_CALL), "111", **DECLARED),
    case("without tools", asked(OSLO_CALL, tools=[]), "111"),
    case("without tools, strictly", asked(OSLO_CALL, tools=[]), "101", **DECLARED),
    case("a tool without parameters", asked(OSLO_CALL, tools=[{**tool("get_weather"), "parameters": None}]), "111"),
    # being right
    case("another city", asked(ROME_CALL), "110"),
    case("another tool", asked(call("get_time", {"city": "Oslo"})), "110"),
    case("one of two", asked(ROME_CALL, OSLO_CALL), "011"),
    case("a city in other letters", asked(call("get_weather", {"city": "oslo"})), "110"),
    case("nothing expected", asked(OSLO_CALL, expected={}), "110"),
    case("only a name expected", asked(OSLO_CALL, expected={"name": "get_weather"}), "111"),
    case("a name, and no JSON", asked(call("get_time", "{"), expected={"name": "get_time"}), "101"),
    case("a name, and no JSON, strictly", asked(call("get_time", "{"), expected={"name": "get_time"}), "100", **STRICT),
    case("expected as text", asked(OSLO_CALL, expected={**OSLO, "arguments": '{"city": "Oslo"}'}), "111"),
    case("true for one", asked(call("get_time", {"n": True}), expected={"name": "get_time", "arguments": {"n": 1}}),
         "111"),
    case("true for one, strictly", asked(call("get_time", {"n": True}),
                                         expected={"name": "get_time", "arguments": {"n": 1}}), "110", **STRICT),
    # what a model might write
    case("very deep", asked(call("get_weather", '{"city": ' * 5000 + "1" + "}" * 5000)), "100"),
    case("half a surrogate pair", asked(call("get_weather", r'{"city": "\ud800"}')), "100"),
    case("beyond all numbers", asked(call("get_weather", '{"city": 1e999}')), "100"),
    case("very long", asked(call("get_weather", {"city": "O" * 1_000_000})), "110"),
    case("very many", asked(*[ROME_CALL] * 2000), "010"),
    case("odd characters", asked(call("get_weather", {"city": "Oslo\x00\u202e"})), "110"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(ToolCallMultiRewardResourcesServer, **case.settings), case)


@pytest.mark.parametrize(
    "expected",
    [
        {"arguments": {}},
        {"name": None, "arguments": {}},
        {"name": "f", "arguments": [1]},
        {"name": "f", "arguments": "{"},
    ],
)
async def test_a_row_without_a_call_says_nothing_about_the_model(expected: dict[str, Any]) -> None:
    """Spec 51, Do better."""
    verdict = await verified(new_server(ToolCallMultiRewardResourcesServer), asked(OSLO_CALL, expected=expected))
    assert (verdict.reward, verdict.mask_sample, verdict.failure_kind) == (0.0, True, "verifier_error")
    assert "expected_call is" in verdict.failure_reason


def test_over_http() -> None:
    arguments = '{"city": "Oslo", "n": ' + "9" * 30 + "}"
    with TestClient(new_server(ToolCallMultiRewardResourcesServer).setup_webserver()) as client:
        found = client.post("/get_weather", json={"city": "Oslo"}).json()
        assert found == {"city": "Oslo", "weather_description": "The weather in Oslo is sunny."}
        assert [client.post("/get_weather", json=body).status_code for body in ({}, {"city": 1})] == [422] * 2
        answer = client.post("/verify", json=asked(call("get_weather", arguments), call("get_time", "{")))
        bare = client.post("/verify", json=verify_request({}, OSLO_CALL)).json()
        assert client.get("/reverify_mode").json() == "stateless"
    record = orjson.loads(answer.content)
    parts = {"format": 0.0, "schema_valid": 1.0, "correctness": 1.0}
    assert (record["reward"], record["reward_components"]) == (2.0, parts)
    assert {name: record[name] for name in parts} == parts
    assert [each["name"] for each in record["predicted_calls"]] == ["get_weather", "get_time"]
    assert record["predicted_calls"][1]["arguments"] == {}
    assert (bare["reward"], bare["expected_call"]) == (2.0, {})


def test_the_parts_become_metrics() -> None:
    parts = [{"format": 1.0, "schema_valid": 1.0, "correctness": float(right)} for right in (True, False)]
    records = [
        {"_ng_task_index": 0, "_ng_rollout_index": n, "reward": sum(own.values()), "reward_components": own, **own}
        for n, own in enumerate(parts)
    ]
    with TestClient(new_server(ToolCallMultiRewardResourcesServer).setup_webserver()) as client:
        metrics = client.post("/aggregate_metrics", json={"verify_responses": records}).json()["agent_metrics"]
    means = {name: metrics[f"mean/{name}"] for name in ("reward", "format", "correctness")}
    assert means == {"reward": 2.5, "format": 1.0, "correctness": 0.5}


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        (own,) = row["responses_create_params"]["tools"]
        assert (own["name"], own["strict"]) == (row["expected_call"]["name"], True)


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    own = ["reward_components", "format", "schema_valid", "correctness", "predicted_calls"]
    rewards = [3.0, 2.0, 2.0, 2.0, 0.0]
    await check_example_rollouts(new_server(ToolCallMultiRewardResourcesServer), FOLDER, own=own, rewards=rewards)
