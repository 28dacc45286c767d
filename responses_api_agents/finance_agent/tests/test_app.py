from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from aiohttp import ClientResponseError, RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from omegaconf import OmegaConf
from pydantic import ValidationError
from yarl import URL

from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.testing.agents import Surroundings, reply
from nemo_gym.testing.responses import call, reasoning, response
from responses_api_agents.finance_agent.app import FinanceAgent, FinanceAgentConfig, StopReason
from responses_api_agents.finance_agent.overflow import is_context_overflow
from responses_api_agents.finance_agent.research import Research

HERE = Path(__file__).parents[1]
NAMES = ("lookup", "submit_final_result")
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False} for name in NAMES]
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}
ROW = {"responses_create_params": {"input": "?", "tools": TOOLS}, "question": "?", "expected_answer": "42"}
SUBMIT = call("submit_final_result", {"final_result": "42"}, "s")
LOOKUP = call("lookup", {"word": "a"}, "l")
TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
NEVER = object()


def http_error(status: int, text: str) -> ClientResponseError:
    info = RequestInfo(URL("http://x/"), "POST", CIMultiDictProxy(CIMultiDict()), URL("http://x/"))
    error = ClientResponseError(info, (), status=status, message="no")
    error.response_content = text.encode()  # type: ignore[attr-defined]
    return error


class Run(Surroundings):
    """The servers around an agent. Model turns and what tools answer are given in order, the last one again and again;
    exceptions are raised, NEVER is never answered."""

    def __init__(self, *turns: Any, tools: Any = (), verify: Any = None, seed: Any = None, **config: Any) -> None:
        self.replies: dict[tuple[str, str], list[Any]] = {
            ("model", "/v1/responses"): list(turns),
            ("env", "/seed_session"): [seed or reply({}, sid="seeded")],
            ("env", "/lookup"): list(tools) or [reply({"results": "found"})],
            ("env", "/submit_final_result"): [reply({"results": '{"success": true}'})],
            ("env", "/verify"): [verify or self._verdict],
            ("env", "/close_session"): [reply({})],
            ("env", "/aggregate_metrics"): [reply({"key_metrics": {"mean/reward": 0.5}, "agent_metrics": {}})],
        }
        fields = {
            "resources_server": {"type": "resources_servers", "name": "env"},
            "model_server": {"type": "responses_api_models", "name": "model"},
            "no_tool_call_nudge": "Continue.",
            "max_time_seconds": None,
            "abort_on_tool_error_types": [],
            "max_steps": 10,
            **config,
        }
        super().__init__(FinanceAgent, **fields)

    def _verdict(self) -> LocalResponse:
        return reply({**self.sent[-1]["json"], "reward": 1.0, "judge_rating": 2})

    async def answer(self, server: str, path: str, options: dict[str, Any]) -> LocalResponse:
        waiting = self.replies[server, "/v1/responses" if "/v1/responses" in path else path]
        given = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if given is NEVER:
            await asyncio.Event().wait()
        given = given() if callable(given) else given
        if isinstance(given, BaseException):
            raise given
        return given if isinstance(given, LocalResponse) else reply(given)

    async def respond(self) -> dict[str, Any]:
        answer = await self.request("/v1/responses", {"input": "?", "tools": TOOLS}, {"sid": "seeded"})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def rollout(self, **row: Any) -> dict[str, Any]:
        answer = await self.request("/run", {**ROW, **row})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def model_calls(self) -> list[dict[str, Any]]:
        return self.to("model", "/v1/responses")


def stop(result: dict[str, Any]) -> tuple[str, str]:
    return result["metadata"]["stop_reason"], result["metadata"]["steps"]


def kinds(result: dict[str, Any]) -> list[str]:
    return [item["type"] for item in result["output"]]


def outputs(result: dict[str, Any]) -> list[str]:
    return [item["output"] for item in result["output"] if item["type"] == "function_call_output"]


# --- why it ends ------------------------------------------------------------------------------------------------------

LIMITED = response("cut", incomplete_details={"reason": "max_output_tokens"})
ENDS: list[tuple[str, list[Any], dict[str, Any], tuple[str, str]]] = [
    ("submits", [response(SUBMIT)], {}, ("done_tool", "1")),
    ("looks up, then submits", [response(LOOKUP), response(SUBMIT)], {}, ("done_tool", "2")),
    ("submits what is no JSON", [response(call("submit_final_result", "{"))], {}, ("done_tool", "1")),
    ("another done tool", [response(LOOKUP)], {"done_tools": ["lookup"]}, ("done_tool", "1")),
    ("no done tool", [response(SUBMIT)], {"done_tools": [], "max_steps": 2}, ("max_turns", "2")),
    ("never ends", [response(LOOKUP)], {"max_steps": 3}, ("max_turns", "3")),
    ("writes", [response("hm"), response(SUBMIT)], {}, ("done_tool", "2")),
    ("writes, which ends it", [response("hm")], {"continue_if_not_tool_call": False}, ("text_only", "1")),
    ("says nothing", [response(), response(reasoning()), response(SUBMIT)], {}, ("done_tool", "3")),
    ("is cut", [LIMITED], {}, ("max_output_tokens", "1")),
    ("is cut with a call", [response(SUBMIT, incomplete_details={"reason": "max_output_tokens"})], {},
     ("max_output_tokens", "1")),
    ("is filtered", [response(SUBMIT, incomplete_details={"reason": "content_filter"})], {}, ("done_tool", "1")),
    ("breaks", [response(LOOKUP), ConnectionError("gone")], {}, ("error", "2")),
    ("answers nonsense", [response(LOOKUP), reply({"detail": "?"})], {}, ("error", "2")),
    ("is too long", [response(LOOKUP), http_error(400, TOO_LONG)], {}, ("error", "2")),
    ("takes too long", [response(LOOKUP), NEVER], {"model_call_timeout": 0.01}, ("error", "2")),
]  # fmt: skip


@pytest.mark.parametrize(("turns", "config", "ended"), [each[1:] for each in ENDS], ids=[each[0] for each in ENDS])
async def test_why_an_activation_ends(turns: list[Any], config: dict[str, Any], ended: tuple[str, str]) -> None:
    result = await Run(*turns, **config).respond()
    assert stop(result) == ended
    assert ended[0] in set(StopReason)


async def test_time_is_looked_at_before_each_model_call(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = iter([False, False, True])
    monkeypatch.setattr(Research, "_is_over_time", lambda self: next(checks))
    run = Run(response(LOOKUP), max_time_seconds=60)
    assert stop(await run.respond()) == ("max_time", "2")
    assert len(run.model_calls()) == 2


@pytest.mark.parametrize(("limit", "over"), [(None, False), (0, True), (1000, False)])
def test_what_counts_as_over_time(limit: float | None, over: bool) -> None:
    run = Run(response(SUBMIT), max_time_seconds=limit)
    research = run.agent._research(MagicMock(cookies={}, path_params={}), MagicMock(tools=[], input="?"), None)
    assert research._is_over_time() == over


async def test_without_a_bound_of_steps_it_goes_on() -> None:
    run = Run(*[response(LOOKUP)] * 30, response(SUBMIT), max_steps=None)
    assert stop(await run.respond()) == ("done_tool", "31")


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_text_is_answered_with_the_nudge() -> None:
    run = Run(response("hm"), response(SUBMIT), no_tool_call_nudge="Go on!")
    result = await run.respond()
    assert kinds(result) == ["message", "message", "function_call", "function_call_output"]
    assert run.model_calls()[1]["json"]["input"][-1] == {"type": "message", "role": "user", "content": "Go on!"}
    assert (result["output"][1]["role"], result["output"][1]["content"]) == ("user", "Go on!")


async def test_a_turn_without_text_is_just_repeated() -> None:
    run = Run(response(reasoning()), response(SUBMIT))
    await run.respond()
    assert [item.get("type") for item in run.model_calls()[1]["json"]["input"]] == [None, "reasoning"]


async def test_calls_after_the_last_one_are_not_made() -> None:
    run = Run(response(SUBMIT, LOOKUP))
    assert kinds(await run.respond()) == ["function_call", "function_call", "function_call_output"]
    assert not run.to("env", "/lookup")


async def test_usage_and_metadata_of_the_whole() -> None:
    turns = [response(LOOKUP, usage=USAGE), response(SUBMIT, usage=USAGE, metadata={"own": "1"})]
    result = await Run(*turns).respond()
    assert result["usage"]["total_tokens"] == 30
    assert result["metadata"] == {"own": "1", "stop_reason": "done_tool", "steps": "2"}


async def test_cookies_of_both_servers() -> None:
    tools = [reply({"results": "a"}, sid="two"), reply({"results": "b"}), reply({"results": "c"}, other="three")]
    turns = [reply(response(LOOKUP), model="m1"), reply(response(LOOKUP), model="m2"), *[response(LOOKUP)] * 2]
    run = Run(*turns, response(SUBMIT), tools=tools)
    answer = await run.request("/v1/responses", {"input": "?", "tools": TOOLS}, {"sid": "seeded"})
    assert [sent["cookies"] for sent in run.model_calls()[:3]] == [None, {"model": "m1"}, {"model": "m2"}]
    made = [sent["cookies"] for sent in run.to("env", "/lookup")]
    assert made == [{"sid": "seeded"}, {"sid": "two"}, {"sid": "two"}, {"other": "three"}]
    assert dict(answer.cookies).items() >= {"other": "three"}.items()


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["{", "", "null", "[1]", '{"a": NaN}'])
async def test_arguments_that_can_t_be_read_are_answered(arguments: str) -> None:
    """B71, B72"""
    run = Run(response(call("lookup", arguments)), response(SUBMIT))
    error = json.loads(outputs(await run.respond())[0])["error"]
    assert error.startswith("Invalid tool call arguments: ")
    assert error.endswith("Try something else, or submit what you have.")
    assert not run.to("env", "/lookup")


@pytest.mark.parametrize("name", ["verify", "seed_session", "../verify", "serach"])
async def test_a_model_reaches_no_route_but_the_tools_of_its_row(name: str) -> None:
    """B74, B105"""
    run = Run(response(call(name, {})), response(SUBMIT), done_tools=["submit_final_result", "verify"])
    result = await run.respond()
    assert "The tools are: lookup, submit_final_result." in outputs(result)[0]
    assert stop(result) == ("done_tool", "2")
    assert {path for server, path in run.calls if server == "env"} == {"/submit_final_result"}


async def test_what_a_tool_answers_is_read_whatever_its_status() -> None:
    run = Run(response(LOOKUP), response(SUBMIT), tools=[reply("no such word", 422)])
    assert outputs(await run.respond())[0] == "no such word"


@pytest.mark.parametrize(
    ("answer", "config", "said"),
    [
        (ConnectionError("gone"), {}, "Tool lookup failed: ConnectionError: gone."),
        (NEVER, {"tool_call_timeout": 0.01}, "Tool lookup gave no answer in time."),
        (
            reply("x" * 21),
            {"max_tool_output_bytes": 20},
            "The tool's answer has 21 bytes, more than the 20 allowed: ask for less.",
        ),
    ],
)
async def test_a_tool_that_fails_is_told_and_work_goes_on(answer: Any, config: dict[str, Any], said: str) -> None:
    run = Run(response(LOOKUP), response(SUBMIT), tools=[answer], **config)
    result = await run.respond()
    assert json.loads(outputs(result)[0])["error"] == f"{said} Try something else, or submit what you have."
    assert stop(result) == ("done_tool", "2")


ERRORS = [
    ({"error": "AuthError: no key"}, True),
    ({"results": '{"error": "AuthError: no key"}'}, True),
    ({"results": '{"error": "QuotaError: spent"}'}, True),
    ({"results": '{"error": "AuthErrors: no"}'}, False),
    ({"results": '{"error": "An AuthError: no"}'}, False),
    ({"results": '{"error": 5}'}, False),
    ({"results": "AuthError: no key"}, False),
    ({"results": '{"results": "{\\"error\\": \\"AuthError: deep\\"}"}'}, False),
    ("AuthError: no key", False),
    ([1], False),
]


@pytest.mark.parametrize(("answer", "aborts"), ERRORS)
async def test_errors_of_some_kinds_end_it(answer: Any, aborts: bool) -> None:
    own = {"abort_on_tool_error_types": ["AuthError", "QuotaError"]}
    run = Run(response(LOOKUP, LOOKUP), response(SUBMIT), tools=[reply(answer)], **own)
    result = await run.respond()
    assert stop(result) == (("error", "1") if aborts else ("done_tool", "2"))
    assert len(run.to("env", "/lookup")) == (1 if aborts else 2)
    untroubled = await Run(response(LOOKUP), response(SUBMIT), tools=[reply(answer)]).respond()
    assert stop(untroubled) == ("done_tool", "2")


# --- conversations that are too long ----------------------------------------------------------------------------------

OVERFLOWS = [
    TOO_LONG,
    "prompt is too long: 210000 tokens > 200000 maximum",
    "Input length (9000) exceeds the model's context window of 8192",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Range of input length should be [1, 129024]",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
    "input tokens exceed the configured limit",
    "Requested token count exceeds the model's maximum context length of 4096 tokens",
    "Payload Too Large",
    "Request too large for gpt-4o",
    '{"error": {"code": "context_length_exceeded"}}',
    "Please reduce the length of the messages or completion.",
    "too many input tokens",
    "The prompt (length 5000) is longer than the maximum model length of 4096.",
    "input is too long for requested model",
    "This request would exceed the context limit",
    "Input is longer than the model's context length (8192 tokens)",
    "model_context_window_exceeded",
    "Prompt length 9000 is greater than max_seq_len",
    "maximum context window is 32768 tokens",
    "context size of 4096 has been exceeded",
    "Prompt length is larger than what is allowed",
    "exceeded the maximum of 8000 tokens",
    "The conversation does not fit in memory",
    "input is greater than n_ctx",
    "string too long. Expected a string with maximum length 10485760",
    "string_above_max_length",
]
OTHER_ERRORS = [
    "rate limit exceeded: 20000 tokens per minute",
    "Internal Server Error",
    "invalid api key",
    "the model is overloaded",
    "",
]


@pytest.mark.parametrize("text", OVERFLOWS)
def test_errors_that_say_the_context_is_too_long(text: str) -> None:
    assert is_context_overflow(text)


@pytest.mark.parametrize("text", OTHER_ERRORS)
def test_errors_that_say_something_else(text: str) -> None:
    assert not is_context_overflow(text)


async def test_the_oldest_exchanges_are_dropped_until_it_fits() -> None:
    second = call("lookup", {"word": "b"}, "l2")
    too_long = http_error(400, TOO_LONG)
    turns = [response(reasoning(), LOOKUP, call("lookup", {}, "l1")), response("hm"), response(second)]
    run = Run(*turns, too_long, too_long, response(SUBMIT), truncate_on_overflow=True)
    result = await run.respond()
    sent = [[item.get("type") for item in sent["json"]["input"]] for sent in run.model_calls()]
    assert sent[3] == [None, "reasoning", *["function_call"] * 2, *["function_call_output"] * 2, *["message"] * 2,
                       "function_call", "function_call_output"]  # fmt: skip
    assert sent[4] == [None, "message", "message", "function_call", "function_call_output"]
    assert sent[5] == [None, "function_call", "function_call_output"]
    assert [item.get("call_id") for item in result["output"]] == ["l2", "l2", "s", "s"]
    assert stop(result) == ("done_tool", "6")
    assert result["metadata"]["dropped_exchanges"] == "2"


async def test_the_last_exchange_is_not_dropped() -> None:
    run = Run(response(LOOKUP), http_error(400, TOO_LONG), truncate_on_overflow=True)
    result = await run.respond()
    assert stop(result) == ("error", "2")
    assert kinds(result) == ["function_call", "function_call_output"]


async def test_other_errors_drop_nothing() -> None:
    run = Run(response(LOOKUP), response(LOOKUP), http_error(500, "oh"), truncate_on_overflow=True)
    assert len((await run.respond())["output"]) == 4


# --- a whole rollout --------------------------------------------------------------------------------------------------


async def test_a_rollout_seeds_responds_and_verifies() -> None:
    run = Run(response(LOOKUP), response(SUBMIT))
    record = await run.rollout(uuid="u")
    assert (record["reward"], record["judge_rating"], record["uuid"]) == (1.0, 2, "u")
    assert "_ng_failure_class" not in record
    assert run.calls == [
        ("env", "/seed_session"),
        ("agent", "/v1/responses"),
        ("model", "/v1/responses"),
        ("env", "/lookup"),
        ("model", "/v1/responses"),
        ("env", "/submit_final_result"),
        ("env", "/verify"),
    ]
    assert run.to("env", "/verify")[0]["cookies"]["sid"] == "seeded"


async def test_with_capture_on_calls_go_under_the_rollout_s_prefix_and_it_is_observed() -> None:
    run = Run(response(LOOKUP), response(SUBMIT), observed=True)
    record = await run.rollout(_ng_task_index=3, _ng_rollout_index=1)
    assert ("model", "/ng-rollout/3-1/v1/responses") in run.calls
    trajectory = record["ng_trajectory"]
    assert [turn["turn_no"] for turn in trajectory["turns"]] == [1, 2]
    assert [made["tool_name"] for made in trajectory["tool_calls"]] == ["lookup", "submit_final_result"]
    assert trajectory["invocations"][0]["status"] == "completed"


FAILURES: list[tuple[str, dict[str, Any], str, str]] = [
    ("the seed", {"seed": reply("no table", 500)}, "agent_run_error", "500"),
    ("the first model call", {"turns": [ConnectionError("gone")]}, "agent_request_failed", "gone"),
    ("a prompt too long", {"turns": [http_error(400, TOO_LONG)]}, "agent_run_error", "400"),
    ("verifying", {"verify": reply("oh", 500)}, "agent_run_error", "500"),
    ("no time", {"max_time_seconds": 0}, "agent_timeout", "leaves no time"),
]


@pytest.mark.parametrize(
    ("setup", "kind", "reason"), [each[1:] for each in FAILURES], ids=[each[0] for each in FAILURES]
)
async def test_a_rollout_that_fails_is_no_measurement(setup: dict[str, Any], kind: str, reason: str) -> None:
    turns = setup.get("turns") or [response(SUBMIT)]
    run = Run(*turns, **{name: value for name, value in setup.items() if name != "turns"})
    record = await run.rollout(uuid="u")
    assert (record["reward"], record["mask_sample"], record["uuid"]) == (0.0, True, "u")
    assert record["response"]["id"] == record["response"]["model"] == "error"
    assert (record["response"]["output"], record["response"]["metadata"]) == ([], {"stop_reason": "error"})
    assert record["_ng_failure_class"] == record["failure_kind"] == kind
    assert reason in record["failure_reason"]
    assert record["instance_config"]["mask_sample"] is True


PARTIAL = [
    ("a broken model", [response(LOOKUP), ConnectionError("gone")], {}, "agent_request_failed"),
    ("a slow model", [response(LOOKUP), NEVER], {"model_call_timeout": 0.01}, "agent_timeout"),
    ("a tool's error", [response(LOOKUP)], {"abort_on_tool_error_types": ["E"], "tools": [reply({"error": "E: x"})]},
     "finance_agent:tool_error"),
]  # fmt: skip


@pytest.mark.parametrize(("turns", "config", "kind"), [each[1:] for each in PARTIAL], ids=[each[0] for each in PARTIAL])
async def test_a_failure_on_the_way_keeps_what_there_is_and_counts_in_no_mean(
    turns: list[Any], config: dict[str, Any], kind: str
) -> None:
    record = await Run(*turns, **config).rollout()
    assert (record["mask_sample"], record["_ng_failure_class"], record["failure_kind"]) == (True, kind, kind)
    assert [item["type"] for item in record["response"]["output"]] == ["function_call", "function_call_output"]
    assert record["response"]["metadata"]["stop_reason"] == "error"
    assert record["judge_rating"] == 2


async def test_a_conversation_that_got_too_long_is_the_model_s_own_result() -> None:
    record = await Run(response(LOOKUP), http_error(400, TOO_LONG)).rollout()
    assert record["response"]["metadata"]["stop_reason"] == "error"
    assert (record["reward"], "_ng_failure_class" in record) == (1.0, False)


async def test_a_session_that_is_gone_ends_the_rollout() -> None:
    cause = {
        "server": "env",
        "error": "SessionExpiredError",
        "message": "gone",
        "status": 410,
        "kind": "session_expired",
    }
    gone = LocalResponse(
        method="POST",
        url="http://x/",
        status=410,
        raw_headers=[(b"x-nemo-gym-cause", json.dumps(cause).encode())],
        body=b"gone",
    )
    run = Run(response(LOOKUP), response(SUBMIT), tools=[gone])
    with pytest.raises(ClientResponseError, match="410"):
        await run.respond()


async def test_verification_can_be_skipped() -> None:
    run = Run(response(SUBMIT), skip_verification=True, skip_verification_reward=0.25)
    record = await run.rollout()
    assert (record["reward"], record["verification_skipped"]) == (0.25, True)
    assert ("env", "/verify") not in run.calls


async def test_metrics_are_the_resources_server_s() -> None:
    answer = await Run(response(SUBMIT)).request("/aggregate_metrics", {"verify_responses": [{"reward": 1.0}]})
    assert answer.json()["key_metrics"] == {"mean/reward": 0.5}


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["no_tool_call_nudge", "max_time_seconds", "abort_on_tool_error_types"])
def test_some_settings_must_be_given(missing: str) -> None:
    fields = Run(response(SUBMIT)).agent.config.model_dump()
    del fields[missing]
    with pytest.raises(ValidationError, match=missing):
        FinanceAgentConfig.model_validate(fields)


@pytest.mark.parametrize("bad", [{"max_steps": 0}, {"tool_call_timeout": 0}, {"model_call_timeout": -1}])
def test_settings_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Run(response(SUBMIT), **bad)


def test_the_shipped_config() -> None:
    loaded: Any = OmegaConf.load(HERE / "configs" / "finance_agent.yaml")
    block: Any = OmegaConf.to_container(loaded.finance_agent.responses_api_agents.finance_agent)
    block |= {"resources_server": {"type": "resources_servers", "name": "env"}, "host": "h", "port": 1, "name": "n"}
    config = FinanceAgentConfig.model_validate(block)
    assert set(block) <= set(FinanceAgentConfig.model_fields)
    assert (config.max_steps, config.tool_call_timeout, config.no_tool_call_nudge) == (50, 300, "Continue.")
    assert config.done_tools == ["submit_final_result"]
    assert FinanceAgent.shareable and FinanceAgent.ray_enabled is False
