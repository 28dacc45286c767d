from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.rollout_observability import TrajectoryRecord
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.testing.agents import Surroundings, reply
from responses_api_agents.simple_agent.tests.test_app import TOOLS, answered, call, message, reasoning
from responses_api_agents.tool_simulation_agent.app import ToolSimulationAgent

MODEL, VERIFY = ("policy_model", "/v1/responses"), ("judged", "/verify")
ROW: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user", "content": "Weather?"}], "tools": TOOLS},
    "expected_action": {"type": "message", "content": "x"},
    "task_id": "t",
}
REFERENCES = {
    "resources_server": {"type": "resources_servers", "name": "judged"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}


class World(Surroundings):
    """An agent between a model that answers `turn` and a verifier that pays 0.5."""

    def __init__(self, turn: Any, **config: Any) -> None:
        self.turn = turn if isinstance(turn, LocalResponse) else reply(turn, model="m1")
        super().__init__(ToolSimulationAgent, **{**REFERENCES, **config})

    async def answer(self, server: str, path: str, options: dict[str, Any]) -> LocalResponse:
        return self.turn if server == "policy_model" else reply(options["json"] | {"reward": 0.5})


def kinds(record: dict[str, Any]) -> list[str]:
    return [item["type"] for item in record["response"]["output"]]


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (answered(message()), ["message"]),
        (answered(call()), ["function_call"]),
        (answered(reasoning(), call(), call(call_id="c2")), ["reasoning", "function_call", "function_call"]),
        (answered(call(arguments="{", name="verify")), ["function_call"]),
        (answered(), []),
    ],
)
async def test_one_answer_is_verified_and_nothing_is_executed(turn: Any, expected: list[str]) -> None:
    world = World(turn)
    record = (await world.request("/run", ROW)).json()
    assert world.calls == [("agent", "/v1/responses"), MODEL, VERIFY]
    assert (record["reward"], kinds(record)) == (0.5, expected)
    verified = world.sent[-1]["json"]
    assert verified.keys() == ROW.keys() | {"response"} and verified["expected_action"] == ROW["expected_action"]


async def test_no_cookies_go_anywhere() -> None:
    world = World(answered(message()))
    await world.request("/run", ROW, {"session": "s"})
    assert [sent.get("cookies") or {} for sent in world.sent] == [{}, {}, {}]


async def test_verification_can_be_skipped() -> None:
    world = World(answered(message()), skip_verification=True, skip_verification_reward=0.25)
    record = (await world.request("/run", ROW)).json()
    assert VERIFY not in world.calls
    assert (record["reward"], record["verification_skipped"]) == (0.25, True)


async def test_what_is_no_response_is_an_error_that_shows_it() -> None:
    with pytest.raises(RuntimeError, match=r"is not a response: \{'no': 'response'\}"):
        await World({"no": "response"}).request("/v1/responses", ROW["responses_create_params"])


async def test_metrics_are_its_own() -> None:
    world = World(answered(message()))
    records = [{"_ng_task_index": 0, "_ng_rollout_index": index, "reward": float(index)} for index in range(2)]
    metrics = (await world.request("/aggregate_metrics", {"verify_responses": records})).json()
    assert metrics["agent_metrics"]["mean/reward"] == 0.5 and world.calls == []


async def test_a_rollout_that_is_observed_has_its_trajectory() -> None:
    world = World(answered(call()), observed=True)
    record = (await world.request("/run", {**ROW, "_ng_task_index": 3, "_ng_rollout_index": 1})).json()
    assert [path for _, path in world.calls[:2]] == ["/ng-rollout/3-1/v1/responses"] * 2
    trajectory = TrajectoryRecord.model_validate(record["ng_trajectory"])
    assert (trajectory.task_id, len(trajectory.turns), trajectory.tool_calls) == ("t", 1, [])
    assert trajectory.invocations[0].status == "completed"


@pytest.mark.parametrize("config", [{"execute_tools": True}, {"resources_server": None}])
def test_what_makes_no_sense_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        World(answered(), **config)
