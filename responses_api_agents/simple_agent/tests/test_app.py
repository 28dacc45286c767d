from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from fastapi import Request, Response
from pydantic import ValidationError

from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.testing.agents import Surroundings, reply
from responses_api_agents.simple_agent.app import SimpleAgent

TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}]
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}


def message(text: str = "Done.", **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part], **fields}


def reasoning() -> dict[str, Any]:
    return {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}


def call(arguments: str = '{"city": "Oslo"}', name: str = "get_weather", call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def answered(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp",
        "created_at": 1.0,
        "model": "m",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **fields,
    }


class Run(Surroundings):
    """The servers around an agent: `replies` by (server, path) are given in order, the last one again and again."""

    def __init__(
        self,
        *turns: dict[str, Any] | LocalResponse,
        agent_cls: type[SimpleAgent] = SimpleAgent,
        config: dict[str, Any] | None = None,
        observability: bool = False,
        **replies: LocalResponse,
    ) -> None:
        self.replies: dict[tuple[str, str], list[LocalResponse]] = {
            ("policy_model", "/v1/responses"): [t if isinstance(t, LocalResponse) else reply(t) for t in turns],
            ("mcqa", "/seed_session"): [reply({}, sid="seeded")],
        }
        self.replies |= {("mcqa", f"/{path}"): [answer] for path, answer in replies.items()}
        fields = {
            "resources_server": {"type": "resources_servers", "name": "mcqa"},
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
            **(config or {}),
        }
        super().__init__(agent_cls, observed=observability, **fields)

    async def answer(self, server: str, path: str, options: dict[str, Any]) -> LocalResponse:
        waiting = self.replies[server, path.partition("/v1/")[1] + path.partition("/v1/")[2] or path]
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    async def respond(self, text: object = "Weather?", **params: Any) -> dict[str, Any]:
        answer = await self.request("/v1/responses", {"input": text, "tools": TOOLS, **params})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def model_calls(self) -> list[dict[str, Any]]:
        return self.to("policy_model", "/v1/responses")


def outputs(response: dict[str, Any]) -> list[str]:
    return [item["output"] for item in response["output"] if item["type"] == "function_call_output"]


# --- the loop ---------------------------------------------------------------------------------------------------------


async def test_a_message_ends_the_loop() -> None:
    run = Run(answered(message("Hello.")))
    response = await run.respond("Hi")
    assert [item["type"] for item in response["output"]] == ["message"]
    assert len(run.calls) == 1
    assert run.model_calls()[0]["json"]["input"] == [{"role": "user", "content": "Hi"}]
    assert run.model_calls()[0]["cookies"] is None


async def test_the_first_call_sends_the_request_as_it_came() -> None:
    run = Run(answered(message()))
    await run.respond([{"role": "user", "content": "Hi", "type": "message"}], temperature=0.5, tools=[])
    sent = run.agent.server_client.post.call_args.kwargs["json"]
    expected = {"input": [{"role": "user", "content": "Hi", "type": "message"}], "temperature": 0.5, "tools": []}
    assert sent == NeMoGymResponseCreateParamsNonStreaming.model_validate(expected)


async def test_tools_are_called_in_order_and_their_outputs_go_back() -> None:
    first = answered(reasoning(), call(call_id="c1"), call('{"city": "Rome"}', call_id="c2"))
    run = Run(first, answered(message()), get_weather=reply('{"weather": "cold"}'))
    response = await run.respond(temperature=0.1)
    assert [item["type"] for item in response["output"]] == [
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert outputs(response) == ['{"weather": "cold"}'] * 2
    assert [sent["json"] for sent in run.to("mcqa", "/get_weather")] == [{"city": "Oslo"}, {"city": "Rome"}]
    again = run.model_calls()[1]["json"]
    assert again["temperature"] == 0.1
    assert [item.get("type") for item in again["input"]] == [None, *(i["type"] for i in response["output"][:5])]


async def test_items_go_back_to_the_model_as_they_came() -> None:
    tokens = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    turn = answered({**call(), **tokens, "invented": {"a": None}})
    run = Run(turn, answered(message()), get_weather=reply("ok"))
    await run.respond()
    output = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    assert run.model_calls()[1]["json"]["input"][1:] == [turn["output"][0], output]


@pytest.mark.parametrize(
    ("config", "length", "is_kept"),
    [
        ({}, 10_000_000, True),
        ({}, 10_000_001, False),
        ({"max_tool_output_bytes": 5}, 5, True),
        ({"max_tool_output_bytes": 5}, 6, False),
        ({"max_tool_output_bytes": 0}, 10_000_001, True),
        ({"max_tool_output_bytes": None}, 10_000_001, True),
    ],
)
async def test_a_tool_may_answer_ten_million_bytes(config: dict[str, Any], length: int, is_kept: bool) -> None:
    run = Run(answered(call()), answered(message()), get_weather=reply("x" * length), config=config)
    (output,) = outputs(await run.respond())
    bound = f"{config.get('max_tool_output_bytes', 10_000_000) or 0:,}"
    refusal = f"The tool's answer has {length:,} bytes, more than the {bound} allowed: ask for less"
    assert output == ("x" * length if is_kept else json.dumps({"error": refusal}))


async def test_any_status_of_a_tool_is_fed_back() -> None:
    run = Run(answered(call()), answered(message()), get_weather=reply("no such city: \u00e5", status=422))
    assert outputs(await run.respond()) == ["no such city: \u00e5"]


@pytest.mark.parametrize("arguments", ['{"a": 1', "", "null", "[1]", '"x"', "3", '{"a": NaN}'])
async def test_unusable_arguments_are_answered_without_a_call(arguments: str) -> None:
    run = Run(answered(call(arguments)), answered(message()), get_weather=reply("never"))
    response = await run.respond()
    assert outputs(response)[0].startswith('{"error": "Invalid tool call arguments: ')
    assert not run.to("mcqa", "/get_weather")
    assert response["output"][-1]["type"] == "message"


@pytest.mark.parametrize("name", ["verify", "seed_session", "../verify", "openapi.json?x", "get_weather/"])
async def test_the_model_reaches_no_route_but_the_tools_of_its_row(name: str) -> None:
    run = Run(answered(call(name=name)), answered(message()))
    assert "The tools are: get_weather." in outputs(await run.respond())[0]
    assert {server for server, _ in run.calls} == {"policy_model"}


async def test_without_tools_in_the_row_there_are_none() -> None:
    run = Run(answered(call()), answered(message()))
    assert "There are no tools." in outputs(await run.respond(tools=[]))[0]


async def test_a_reserved_route_stays_out_of_reach_when_the_row_offers_it() -> None:
    run = Run(answered(call(name="verify")), answered(message()))
    tools = [{"type": "function", "name": "verify", "parameters": {}, "strict": False}]
    assert "There are no tools." in outputs(await run.respond(tools=tools))[0]


async def test_usage_is_summed_over_the_calls_that_report_it() -> None:
    turns = [answered(call(), usage=USAGE), answered(call()), answered(message(), usage=USAGE)]
    usage = (await Run(*turns, get_weather=reply("x")).respond())["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (20, 10, 30)
    assert usage["input_tokens_details"]["cached_tokens"] == 2
    assert (await Run(answered(message())).respond())["usage"] is None


async def test_an_incomplete_response_ends_the_loop_with_its_calls_open() -> None:
    run = Run(answered(call(), incomplete_details={"reason": "max_output_tokens"}))
    response = await run.respond()
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert len(run.calls) == 1


@pytest.mark.parametrize(
    ("output", "reason"), [([], "empty_output"), ([reasoning()], "incomplete_reasoning"), ([message()], None)]
)
async def test_an_end_without_message_is_told(
    output: list[dict[str, Any]], reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        response = await Run(answered(*output, status="completed", metadata={"own": "1"})).respond()
    assert response["metadata"]["own"] == "1"
    assert response["metadata"].get("ng_termination_reason") == reason
    assert response["status"] == ("incomplete" if reason else "completed")
    assert bool(response["metadata"].get("ng_termination_message")) == bool(reason) == bool(caplog.records)


@pytest.mark.parametrize(("max_steps", "model_calls"), [(1, 1), (2, 2), (None, 4), (0, 4)])
async def test_steps_are_bounded_and_the_last_one_s_tools_run(max_steps: int | None, model_calls: int) -> None:
    turns = [answered(call()), answered(call()), answered(call()), answered(message())]
    run = Run(*turns, config={"max_steps": max_steps}, get_weather=reply("x"))
    response = await run.respond()
    assert len(run.model_calls()) == model_calls
    assert len(run.to("mcqa", "/get_weather")) == min(model_calls, 3) == len(outputs(response))


def test_negative_steps_are_refused() -> None:
    with pytest.raises(ValidationError, match="max_steps"):
        Run(config={"max_steps": -1})


async def test_calls_stay_open_without_execute_tools() -> None:
    run = Run(answered(call()), config={"execute_tools": False})
    assert [item["type"] for item in (await run.respond())["output"]] == ["function_call"]
    assert len(run.calls) == 1


async def test_a_tool_call_needs_a_resources_server() -> None:
    run = Run(answered(call()), config={"resources_server": None})
    with pytest.raises(RuntimeError, match="no resources_server to call the tool 'get_weather' of"):
        await run.respond()


async def test_a_failing_model_server_is_an_error() -> None:
    with pytest.raises(Exception, match="503"):
        await Run(reply("busy", status=503)).respond()


async def test_what_is_no_response_is_shown() -> None:
    with pytest.raises(RuntimeError, match=r"not a response: \{'detail': 'surprise'\}"):
        await Run(reply({"detail": "surprise"})).respond()


async def test_cookies_of_both_servers_are_kept_apart_and_handed_on() -> None:
    turns = [reply(answered(call()), model="m1"), reply(answered(call()), model="m2"), reply(answered(message()))]
    run = Run(*turns, get_weather=reply("x", sid="tool", extra="e"))
    answer = await run.request("/v1/responses", {"input": "?", "tools": TOOLS}, {"sid": "seeded"})
    assert [sent["cookies"] for sent in run.model_calls()] == [None, {"model": "m1"}, {"model": "m2"}]
    tool_cookies = [sent["cookies"] for sent in run.to("mcqa", "/get_weather")]
    assert tool_cookies == [{"sid": "seeded"}, {"sid": "tool", "extra": "e"}]
    assert {"sid": "tool", "extra": "e"}.items() <= dict(answer.cookies).items()


async def test_the_rollout_prefix_is_carried_to_the_model() -> None:
    run = Run(answered(message()))
    answer = await run.request("/ng-rollout/7-0/v1/responses", {"input": "?"})
    assert answer.status_code == 200
    assert run.calls == [("policy_model", "/ng-rollout/7-0/v1/responses")]


# --- a whole rollout --------------------------------------------------------------------------------------------------

ROW = {
    "responses_create_params": {"input": "?", "tools": TOOLS},
    "expected_answer": "C",
    "verifier_metadata": {"a": [1]},
}


def verdict(**fields: Any) -> LocalResponse:
    base = {"responses_create_params": {"input": "?"}, "response": answered(message()), "reward": 1.0}
    return reply({**base, **fields})


async def test_a_rollout_seeds_responds_and_verifies() -> None:
    run = Run(
        answered(call()), answered(message("Cold.")), get_weather=reply("cold", sid="tool"), verify=verdict(extra=1)
    )
    answer = await run.request("/run", {**ROW, "_ng_task_index": 3})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["reward"], answer.json()["extra"]) == (1.0, 1)
    assert run.calls == [
        ("mcqa", "/seed_session"),
        ("agent", "/v1/responses"),
        ("policy_model", "/v1/responses"),
        ("mcqa", "/get_weather"),
        ("policy_model", "/v1/responses"),
        ("mcqa", "/verify"),
    ]
    seed, (verify,) = run.sent[0], run.to("mcqa", "/verify")
    assert seed["json"].items() >= {"expected_answer": "C", "_ng_task_index": 3}.items()
    assert run.sent[1]["cookies"] == {"sid": "seeded"}
    assert run.to("mcqa", "/get_weather")[0]["cookies"] == {"sid": "seeded"}
    assert verify["cookies"]["sid"] == "tool"
    assert verify["json"] == seed["json"] | {"response": verify["json"]["response"]}
    assert outputs(verify["json"]["response"]) == ["cold"]


async def test_the_response_reaches_the_verifier_with_what_nobody_declared() -> None:
    run = Run(answered(message(invented={"kept": [None]})), verify=verdict())
    await run.request("/run", ROW)
    assert run.to("mcqa", "/verify")[0]["json"]["response"]["output"][0]["invented"] == {"kept": [None]}


async def test_how_a_response_ended_survives_the_rollout() -> None:
    echo: list[dict[str, Any]] = []

    class Echo(SimpleAgent):
        async def _verify(self, resources_server: str, verification: dict[str, Any], cookies: dict[str, str]) -> Any:
            echo.append(verification)
            return {**verification, "reward": 0.0}

    run = Run(answered(), agent_cls=Echo)
    record = (await run.request("/run", ROW)).json()
    assert record["response"]["metadata"]["ng_termination_reason"] == "empty_output"
    assert record["expected_answer"] == "C"


async def test_an_overridden_responses_is_what_runs() -> None:
    class Canned(SimpleAgent):
        async def responses(  # type: ignore[override]
            self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
        ) -> NeMoGymResponse:
            response.set_cookie("own", "1")
            return NeMoGymResponse.model_validate(answered(message("canned")))

    run = Run(agent_cls=Canned, verify=verdict())
    assert (await run.request("/run", ROW)).status_code == 200
    sent = run.to("mcqa", "/verify")[0]
    assert sent["json"]["response"]["output"][0]["content"][0]["text"] == "canned"
    assert sent["cookies"]["own"] == "1"


async def test_with_capture_on_the_self_post_goes_under_the_rollout_s_prefix() -> None:
    run = Run(answered(message()), verify=verdict(), observability=True)
    answer = await run.request("/run", {**ROW, "_ng_task_index": 3, "_ng_rollout_index": 1})
    assert answer.status_code == 200, answer.text
    assert run.calls[1:3] == [
        ("agent", "/ng-rollout/3-1/v1/responses"),
        ("policy_model", "/ng-rollout/3-1/v1/responses"),
    ]


async def test_verification_can_be_skipped() -> None:
    run = Run(answered(message()), config={"skip_verification": True, "skip_verification_reward": 0.25})
    record = (await run.request("/run", ROW)).json()
    assert (record["reward"], record["verification_skipped"], record["expected_answer"]) == (0.25, True, "C")
    assert ("mcqa", "/verify") not in run.calls


@pytest.mark.parametrize(
    ("config", "message"),
    [({"execute_tools": False}, "execute_tools: false"), ({"resources_server": None}, "needs a resources_server")],
)
async def test_rollouts_need_tools_and_a_resources_server(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await Run(config=config).request("/run", ROW)


@pytest.mark.parametrize("failing", ["seed_session", "verify"])
async def test_a_failing_resources_server_is_an_error(failing: str) -> None:
    run = Run(answered(message()), verify=verdict())
    run.replies["mcqa", f"/{failing}"] = [reply("broken", status=500)]
    with pytest.raises(Exception, match="500"):
        await run.request("/run", ROW)


# --- metrics ----------------------------------------------------------------------------------------------------------

METRICS = {
    "group_level_metrics": [{"a": 1}],
    "agent_metrics": {"mean/reward": 1.0},
    "key_metrics": {"elo": 3},
    "perf_summary": None,
    "repeat_level_metrics": [],
}


async def test_metrics_are_the_resources_server_s() -> None:
    run = Run(aggregate_metrics=reply(METRICS))
    body = {"verify_responses": [{"reward": 1.0}]}
    assert (await run.request("/aggregate_metrics", body)).json() == METRICS
    assert run.to("mcqa", "/aggregate_metrics")[0]["json"] == body


async def test_metrics_are_its_own_without_a_resources_server_and_none_without_verification() -> None:
    body = {"verify_responses": [{"reward": 1.0}]}
    alone = Run(config={"resources_server": None})
    assert (await alone.request("/aggregate_metrics", body)).json()["key_metrics"] == {"mean/reward": 1.0}
    skipping = Run(config={"skip_verification": True})
    with pytest.warns(RuntimeWarning, match="skip_verification"):
        assert (await skipping.request("/aggregate_metrics", body)).json()["agent_metrics"] == {}


def test_several_agents_may_live_in_one_process_without_ray() -> None:
    assert SimpleAgent.shareable
    assert SimpleAgent.ray_enabled is False
