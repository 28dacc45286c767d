from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.testing.agents import Surroundings, reply
from nemo_gym.testing.responses import call, response
from responses_api_agents.non_executing_simple_agent.app import (
    NonExecutingSimpleAgent,
    NonExecutingSimpleAgentConfig,
)

FIELDS = {
    "host": "127.0.0.1",
    "port": 1,
    "entrypoint": "app.py",
    "name": "agent",
    "resources_server": {"type": "resources_servers", "name": "weather"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}
ROW = {
    "responses_create_params": {
        "input": "Weather in Oslo?",
        "tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}],
    },
    "expected": "Oslo",
}


class World(Surroundings):
    """The agent, and the servers around it: a model that answers `turn`, and a verifier that pays 0.5."""

    def __init__(self, turn: dict[str, Any], **config: Any) -> None:
        self.turn = turn
        super().__init__(NonExecutingSimpleAgent, **{**FIELDS, **config})

    async def answer(self, server: str, path: str, options: dict[str, Any]) -> LocalResponse:
        if path == "/verify":
            return reply({**options["json"], "reward": 0.5})
        return reply(self.turn, model="m1") if server == "policy_model" else reply({}, session="s1")


async def test_a_call_is_verified_and_not_executed() -> None:
    world = World(response(call("get_weather", {"city": "Oslo"})))
    answer = await world.request("/run", ROW)
    assert answer.status_code == 200, answer.text
    assert world.calls == [
        ("weather", "/seed_session"),
        ("agent", "/v1/responses"),
        ("policy_model", "/v1/responses"),
        ("weather", "/verify"),
    ]
    assert answer.json()["reward"] == 0.5
    assert [item["type"] for item in answer.json()["response"]["output"]] == ["function_call"]
    verification = world.sent[-1]
    assert (verification["json"]["expected"], verification["cookies"]["session"]) == ("Oslo", "s1")


async def test_a_reply_carries_the_cookies_of_the_request_and_of_the_model() -> None:
    world = World(response("It is cold."))
    answer = await world.request("/v1/responses", ROW["responses_create_params"], {"session": "s2"})
    assert (answer.cookies["session"], answer.cookies["model"]) == ("s2", "m1")


async def test_verification_can_be_skipped() -> None:
    world = World(response("It is cold."), skip_verification=True, skip_verification_reward=0.25)
    answer = (await world.request("/run", ROW)).json()
    assert (answer["reward"], answer["verification_skipped"]) == (0.25, True)
    assert world.calls[-1][0] == "policy_model"


def test_it_is_never_told_to_execute() -> None:
    with pytest.raises(ValidationError, match="execute_tools"):
        NonExecutingSimpleAgentConfig.model_validate({**FIELDS, "execute_tools": True})


async def test_it_needs_a_resources_server_for_rollouts() -> None:
    with pytest.raises(ValueError, match="needs a resources_server"):
        await World(response("x"), resources_server=None).request("/run", ROW)
