"""The loop between a model and an environment, with both of them scripted; at the end with real environments."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from nemo_gym.base_resources_server import SessionExpiredError
from nemo_gym.rollout_observability import TrajectoryRecord
from nemo_gym.serve.failures import Cause
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.testing.agents import Surroundings, as_local, post_to, reply
from nemo_gym.testing.verdicts import new_server
from resources_servers.blackjack.app import BlackjackEnv
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent
from responses_api_agents.simple_agent.tests.test_app import USAGE, answered, call, message, reasoning

MODEL = ("policy_model", "/v1/responses")
RESET, STEP, CLOSE = (("game", path) for path in ("/reset", "/step", "/close"))
ROW: dict[str, Any] = {"responses_create_params": {"input": [{"role": "user", "content": "Play."}]}, "seed": 4}
OVER = {"reward": 1.0, "terminated": True, "info": {"result": "win"}}
CLOSABLE = {"observation": "o", "info": {"supports_explicit_close": True}}


class World(Surroundings):
    """The servers around an agent: what each answers in order, the last one again and again."""

    def __init__(self, *turns: Any, reset: Any = None, steps: Any = (OVER,), **more: Any):
        self.replies = {
            MODEL: [_answer(turn) for turn in turns or (answered(message()),)],
            RESET: [_answer(reset or {"observation": "You see a door."}, sid="s1")],
            STEP: [_answer(step) for step in steps],
            CLOSE: [_answer(more.pop("close", {}))],
        }
        self.apps: dict[str, FastAPI] = {}
        fields = {
            "resources_server": {"type": "resources_servers", "name": "game"},
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
            **more,
        }
        super().__init__(GymnasiumAgent, **fields)

    async def answer(self, server: str, path: str, options: dict[str, Any]) -> LocalResponse:
        if server in self.apps:
            return as_local(await post_to(self.apps[server], path, options["json"], options.get("cookies")))
        prefix, slash, rest = path.partition("/v1/")
        waiting = self.replies[server, slash + rest if slash else prefix]
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    async def run(self, row: dict[str, Any] | None = None, **cookies: str) -> dict[str, Any]:
        answer = await self.request("/run", row or ROW, cookies)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result


def _answer(content: Any, **cookies: str) -> LocalResponse:
    return content if isinstance(content, LocalResponse) else reply(content, 200, **cookies)


def kinds(response: dict[str, Any]) -> list[str]:
    return [item.get("role") if item["type"] == "message" else item["type"] for item in response["output"]]


# --- the loop ---------------------------------------------------------------------------------------------------------


async def test_an_episode_of_one_step() -> None:
    world = World()
    result = await world.run()
    assert world.calls == [RESET, MODEL, STEP]
    assert (result["reward"], result["terminated"], result["truncated"]) == (1.0, True, False)
    assert result["info"] == {"result": "win"} and kinds(result["response"]) == ["assistant"]
    assert (result["mask_sample"], result["failure_kind"]) == (False, None)


async def test_the_first_observation_is_a_part_of_the_prompt() -> None:
    world = World()
    result = await world.run()
    shown = {"type": "message", "role": "user", "content": "You see a door."}
    (asked,) = world.to(*MODEL)
    assert [item["content"] for item in asked["json"]["input"]] == ["Play.", "You see a door."]
    assert result["responses_create_params"]["input"][-1].items() >= shown.items()
    stepped = world.to(*STEP)[0]["json"]["responses_create_params"]["input"]
    assert [item["content"] for item in stepped] == ["Play."], "steps get the row as it was"


@pytest.mark.parametrize("given", ["Play.", [{"role": "user", "content": "Play."}]])
async def test_without_an_observation_the_prompt_stays_as_it_is(given: Any) -> None:
    world = World(reset={"observation": None, "info": {}})
    result = await world.run({"responses_create_params": {"input": given, "temperature": 0.5}})
    (asked,) = world.to(*MODEL)
    contents = [item["content"] for item in asked["json"]["input"]]
    assert contents == ["Play."] and asked["json"]["temperature"] == 0.5
    assert isinstance(result["responses_create_params"]["input"], type(given))


async def test_a_prompt_that_is_a_text_gets_the_observation_too() -> None:
    world = World()
    await world.run({"responses_create_params": {"input": "Play."}})
    assert [item["content"] for item in world.to(*MODEL)[0]["json"]["input"]] == ["Play.", "You see a door."]


async def test_steps_get_the_row_and_this_reply_alone() -> None:
    steps = [{"observation": "A hall.", "reward": 0.25}, {"observation": "A cellar.", "reward": -1}, OVER]
    turns = [answered(message(text), id=text) for text in ("open", "down", "take")]
    world = World(*turns, steps=steps)
    result = await world.run()
    assert [sent["json"]["response"]["id"] for sent in world.to(*STEP)] == ["open", "down", "take"]
    assert all(len(sent["json"]["response"]["output"]) == 1 for sent in world.to(*STEP))
    assert all(sent["json"]["seed"] == 4 and "_ng_step_request_id" not in sent["json"] for sent in world.to(*STEP))
    assert result["reward"] == 0.25
    assert kinds(result["response"]) == ["assistant", "user", "assistant", "user", "assistant"]
    asked = world.to(*MODEL)[2]["json"]["input"]
    assert [item["content"] for item in asked if item["role"] == "user"] == [
        "Play.",
        "You see a door.",
        "A hall.",
        "A cellar.",
    ]


async def test_results_of_tools_come_before_the_observation() -> None:
    outputs = [{"call_id": "c1", "output": '{"ok": true}'}, {"call_id": "c2", "output": {"n": 1}}]
    step = {"observation": "Go on.", "info": {"tool_outputs": outputs}}
    world = World(answered(call(), call(call_id="c2")), answered(message()), steps=[step, OVER])
    result = await world.run()
    assert kinds(result["response"]) == ["function_call"] * 2 + ["function_call_output"] * 2 + ["user", "assistant"]
    given = [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert given == ['{"ok": true}', '{"n": 1}']


@pytest.mark.parametrize("outputs", [None, "none", {}, 3])
async def test_what_is_no_list_of_results_is_left_alone(outputs: Any) -> None:
    world = World(steps=[{"info": {"tool_outputs": outputs}}, OVER])
    assert kinds((await world.run())["response"]) == ["assistant", "assistant"]


async def test_items_go_back_to_the_model_as_they_came() -> None:
    tokens = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    turn = answered(reasoning(), {**message("open"), **tokens, "invented": {"a": None}})
    world = World(turn, answered(message()), steps=[{"observation": "A hall."}, OVER])
    result = await world.run()
    assert world.to(*MODEL)[1]["json"]["input"][2:4] == turn["output"]
    assert world.to(*STEP)[0]["json"]["response"] == turn
    kept = result["response"]["output"][1]
    assert {name: kept[name] for name in tokens} == tokens


async def test_usage_is_that_of_all_calls() -> None:
    world = World(answered(message(), usage=USAGE), answered(message(), usage=USAGE), steps=[{}, OVER])
    assert (await world.run())["response"]["usage"]["total_tokens"] == 30


# --- how an episode ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [{"terminated": True}, {"truncated": True}])
async def test_the_environment_ends_the_episode(end: dict[str, bool]) -> None:
    world = World(steps=[{"observation": "last", "reward": 2, **end}])
    result = await world.run()
    assert len(world.to(*MODEL)) == 1
    assert {"terminated": False, "truncated": False, **end}.items() <= result.items()
    assert kinds(result["response"]) == ["assistant"], "nobody answers a last observation"


async def test_too_many_steps_are_truncated() -> None:
    world = World(steps=[{"observation": "Go on.", "reward": 0.5, "info": {"n": 1}}], max_steps=3)
    result = await world.run()
    assert (result["reward"], result["terminated"], result["truncated"]) == (1.5, False, True)
    assert len(world.to(*MODEL)) == len(world.to(*STEP)) == 3 and result["info"] == {"n": 1}


async def test_ten_steps_are_the_default() -> None:
    world = World(steps=[{}])
    await world.run()
    assert len(world.to(*STEP)) == 10


@pytest.mark.parametrize("steps", [0, -1, None])
def test_there_has_to_be_a_step(steps: Any) -> None:
    with pytest.raises(ValidationError, match="max_steps"):
        World(max_steps=steps)


# --- cookies, closing and requests that are repeated ------------------------------------------------------------------


async def test_cookies_of_the_environment_and_of_the_model_stay_apart() -> None:
    world = World(reply(answered(message()), route="m1"), answered(message()))
    world.replies[STEP] = [reply({}, extra="x"), reply(OVER)]
    await world.run(inbound="i")
    assert world.to(*RESET)[0]["cookies"] == {"inbound": "i"}
    assert [sent["cookies"] for sent in world.to(*STEP)] == [
        {"inbound": "i", "sid": "s1"},
        {"inbound": "i", "sid": "s1", "extra": "x"},
    ]
    assert [sent["cookies"] for sent in world.to(*MODEL)] == [None, {"route": "m1"}]


async def test_an_environment_that_wants_it_is_closed_once() -> None:
    world = World(reset=CLOSABLE)
    result = await world.run()
    assert world.calls[-1] == CLOSE and len(world.to(*CLOSE)) == 1
    assert world.to(*CLOSE)[0]["json"] == {} and world.to(*CLOSE)[0]["cookies"] == {"sid": "s1"}
    assert "cleanup_warning" not in result["info"]


@pytest.mark.parametrize("flag", [False, 1, "true", None])
async def test_others_are_not(flag: Any) -> None:
    world = World(reset={"info": {"supports_explicit_close": flag, "supports_step_idempotency": flag}})
    await world.run()
    assert world.to(*CLOSE) == [] and "_ng_step_request_id" not in world.to(*STEP)[0]["json"]


async def test_a_close_that_fails_is_a_warning() -> None:
    result = await World(reset=CLOSABLE, close=reply("broken", status=500)).run()
    warning = result["info"]["cleanup_warning"]
    assert (warning["operation"], warning["error_type"]) == ("close", "ClientResponseError")
    assert result["reward"] == 1.0 and warning["message"]


@pytest.mark.parametrize(
    "fault",
    [
        {"turns": [reply("overloaded", status=503)]},
        {"turns": [{"no": "response"}]},
        {"steps": [reply("bad action", status=400)]},
        {"steps": [{"reward": "high"}]},
        {"reset": {"observation": 5, "info": {"supports_explicit_close": True}}},
        {"steps": [{"info": {"tool_outputs": [{"output": "whose?"}]}}]},
    ],
    ids=["model", "no response", "step", "no step", "reset", "tool output"],
)
async def test_a_rollout_that_fails_closes_the_environment_and_fails(fault: dict[str, Any]) -> None:
    world = World(*fault.get("turns", ()), reset=fault.get("reset", CLOSABLE), steps=fault.get("steps", [OVER]))
    with pytest.raises((RuntimeError, aiohttp.ClientResponseError)):
        await world.request("/run", ROW)
    assert len(world.to(*CLOSE)) == 1


async def test_the_failure_counts_even_where_closing_fails_too() -> None:
    world = World(reply("overloaded", status=503), reset=CLOSABLE, close=reply("broken", status=500))
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await world.request("/run", ROW)
    assert caught.value.status == 503


async def test_a_rollout_that_is_given_up_closes_the_environment() -> None:
    world = World(reset=CLOSABLE)
    asked = asyncio.Event()

    async def never(server_name: str, url_path: str, **options: Any) -> LocalResponse:
        if server_name == "policy_model":
            asked.set()
            await asyncio.Event().wait()
        return await world.post(server_name, url_path, **options)

    world.agent.server_client.post.side_effect = never
    running = asyncio.create_task(world.request("/run", ROW))
    await asked.wait()
    running.cancel()
    async with asyncio.timeout(10):
        while CLOSE not in world.calls:
            await asyncio.sleep(0)


async def test_each_step_has_an_id_where_steps_may_be_repeated() -> None:
    world = World(reset={"info": {"supports_step_idempotency": True}}, steps=[{}, OVER])
    await world.run()
    ids = [sent["json"]["_ng_step_request_id"] for sent in world.to(*STEP)]
    assert len(set(ids)) == 2 and all(len(each) == 32 and int(each, 16) for each in ids)


async def test_a_session_that_is_gone_is_named_by_its_failure() -> None:
    """B76: the kind of what happened at the environment comes through the agent."""
    error = SessionExpiredError("s1", "was not used for 24 hours", server="Game___game")
    headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    gone = LocalResponse(method="POST", url="http://x/", status=410, raw_headers=headers, body=b'{"detail": "gone"}')
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await World(steps=[gone]).request("/run", ROW)
    cause = Cause.of_headers(caught.value.headers)
    assert cause is not None and cause.kind == "session_expired"


# --- the other routes -------------------------------------------------------------------------------------------------


async def test_responses_hands_the_model_s_answer_on() -> None:
    world = World(reply(answered(message("Hi."), invented=1), route="m1"))
    answer = await world.request("/v1/responses", {"input": "Hello", "temperature": 0.5}, {"own": "o"})
    assert answer.status_code == 200 and answer.json()["output"][0]["content"][0]["text"] == "Hi."
    assert answer.json()["invented"] == 1 and answer.cookies["route"] == "m1" and "own" not in answer.cookies
    assert world.calls == [MODEL] and world.to(*MODEL)[0]["cookies"] == {"own": "o"}
    assert world.to(*MODEL)[0]["json"]["input"] == "Hello"


async def test_metrics_are_the_environment_s() -> None:
    world = World()
    world.replies["game", "/aggregate_metrics"] = [reply({"agent_metrics": {"mean/reward": 0.5}})]
    answer = await world.request("/aggregate_metrics", {"verify_responses": [{"reward": 0.5}]})
    assert answer.json()["agent_metrics"] == {"mean/reward": 0.5}


# --- trajectories -----------------------------------------------------------------------------------------------------

OBSERVED = {**ROW, "_ng_task_index": 7, "_ng_rollout_index": 2}


async def test_an_observed_rollout_has_a_trajectory() -> None:
    outputs = {"info": {"tool_outputs": [{"call_id": "c1", "output": "cold"}]}, "observation": "And now?"}
    world = World(answered(call()), answered(message("Stop.")), steps=[outputs, OVER], observed=True)
    result = await world.run(OBSERVED)
    assert [path for server, path in world.calls if server == "policy_model"] == ["/ng-rollout/7-2/v1/responses"] * 2
    trajectory = TrajectoryRecord.model_validate(result["ng_trajectory"])
    assert (trajectory.task_id, trajectory.rollout_id) == ("7", "7-2")
    one, two = trajectory.turns
    assert (one.step_count, two.step_count, len(two.question or ())) == (0, 1, 5)
    (tool,) = trajectory.tool_calls
    assert (tool.tool_call_id, tool.tool_name, tool.output, tool.status) == ("c1", "get_weather", "cold", "completed")
    (invocation,) = trajectory.invocations
    assert (invocation.status, len(invocation.conversation or ())) == ("completed", 6)
    assert [gap.code for gap in trajectory.gaps] == ["resolution_unavailable"]


@pytest.mark.parametrize(("step", "status"), [({"truncated": True}, "incomplete"), (OVER, "completed")])
async def test_its_end_says_how_the_episode_ended(step: dict[str, Any], status: str) -> None:
    world = World(steps=[{**step, "info": {"resolved": True}}], observed=True)
    trajectory = (await world.run(OBSERVED))["ng_trajectory"]
    assert trajectory["invocations"][0]["status"] == status
    assert trajectory["turns"][-1]["resolved"] is True and trajectory["gaps"] == []


async def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    world = World()
    assert "ng_trajectory" not in await world.run(OBSERVED)
    assert world.calls[1] == MODEL, "no prefix either"


# --- a real environment -----------------------------------------------------------------------------------------------


def at_the_table(*turns: str, **more: Any) -> tuple[World, BlackjackEnv]:
    world = World(*(answered(message(text)) for text in turns), **more)
    env = new_server(BlackjackEnv)
    world.apps["game"] = env.setup_webserver()
    return world, env


async def test_a_hand_of_blackjack() -> None:
    world, env = at_the_table("<action>hit</action>", "<action>stand</action>")
    result = await world.run()
    assert (result["reward"], result["info"]["result"]) == (1.0, "win")
    assert result["response"]["output"][1]["content"].startswith("Your hand: [")
    assert len(env.session_state) == 0


@pytest.mark.parametrize("turns", [["<action>hit</action>"], ["broken"]])
async def test_a_lost_rollout_leaves_no_hand_on_the_table(turns: list[str]) -> None:
    """Whether it ran out of steps or of luck."""
    world, env = at_the_table(*turns, max_steps=1)
    if turns == ["broken"]:
        world.replies[MODEL] = [reply("overloaded", status=503)]
        with pytest.raises(aiohttp.ClientResponseError):
            await world.request("/run", ROW)
    else:
        assert (await world.run())["truncated"] is True
    assert len(env.session_state) == 0 and json.dumps(world.calls).count("/close") == 1
