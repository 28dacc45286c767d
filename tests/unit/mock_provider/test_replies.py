"""What the mock provider answers, per dialect, and how a script chooses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.mock_provider import Fault, MockProvider, Reply, Rule, Script, ToolCall, parse_script
from tests.mock_provider.script import ScriptError

QUESTION = [{"role": "user", "content": "What is up?"}]


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider() as provider:
        yield provider


def post(mock: MockProvider, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = httpx.post(mock.url + path, json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def chat(mock: MockProvider, messages: list[dict[str, Any]] = QUESTION, **extra: Any) -> dict[str, Any]:
    return post(mock, "/v1/chat/completions", {"model": "m", "messages": messages, **extra})


def chat_text(mock: MockProvider, *messages: dict[str, Any]) -> Any:
    return chat(mock, list(messages) or QUESTION)["choices"][0]["message"].get("content")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_the_same_reply_in_four_dialects(mock: MockProvider) -> None:
    mock.play(Reply(text="It is B.", reasoning="Hmm."))
    message = chat(mock)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "It is B.", "reasoning_content": "Hmm."}
    output = post(mock, "/v1/responses", {"input": "What is up?", "model": "m"})["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    assert output[1]["content"][0]["text"] == "It is B."
    blocks = post(mock, "/v1/messages", {"messages": QUESTION, "model": "m", "max_tokens": 5})["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    assert post(mock, "/v1/completions", {"prompt": "What is up?"})["choices"][0]["text"] == "It is B."


def test_tool_calls_in_three_dialects(mock: MockProvider) -> None:
    mock.play(Reply(text=None, tool_calls=(ToolCall("look", {"city": "Oslo"}, id="c1"),)))
    choice = chat(mock)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "look", "arguments": '{"city": "Oslo"}'},
    }
    (item,) = post(mock, "/v1/responses", {"input": "x"})["output"]
    assert (item["type"], item["call_id"], item["arguments"]) == ("function_call", "c1", '{"city": "Oslo"}')
    reply = post(mock, "/v1/messages", {"messages": QUESTION})
    assert reply["stop_reason"] == "tool_use"
    assert reply["content"][0]["input"] == {"city": "Oslo"}


def test_malformed_arguments_are_sent_as_scripted(mock: MockProvider) -> None:
    mock.play(Reply(tool_calls=(ToolCall("look", '{"a": 1'),)))
    assert chat(mock)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": 1'


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("reasoning", {"content": "A", "reasoning": "R"}),
        ("both", {"content": "A", "reasoning": "R", "reasoning_content": "R"}),
        ("think_tags", {"content": "<think>R</think>A"}),
    ],
)
def test_reasoning_fields(mock: MockProvider, field: Any, expected: dict[str, str]) -> None:
    mock.play(Reply(text="A", reasoning="R", reasoning_field=field))
    assert chat(mock)["choices"][0]["message"] == {"role": "assistant"} | expected


def test_usage_is_counted_given_or_left_out(mock: MockProvider) -> None:
    assert chat(mock)["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    mock.play(Reply(usage={"prompt_tokens": 7}))
    assert chat(mock)["usage"] == {"prompt_tokens": 7}
    mock.play(Reply(usage=False))
    assert "usage" not in chat(mock)


def test_log_probs_and_token_ids_in_vllm_form(mock: MockProvider) -> None:
    mock.play(Reply(text="yes it is"))
    ask: dict[str, Any] = {"logprobs": True, "return_tokens_as_token_ids": True, "return_token_ids": True}
    reply = chat(mock, QUESTION, **ask)
    choice = reply["choices"][0]
    names = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert names == [f"token_id:{token}" for token in choice["token_ids"]]
    assert len(names) == 3
    assert reply["prompt_token_ids"] == post(mock, "/tokenize", {"messages": QUESTION})["tokens"]


def test_words_name_the_tokens_unless_ids_are_asked_for(mock: MockProvider) -> None:
    mock.play(Reply(text="yes it is", logprobs=(-0.5, -1.0, -2.0)))
    entries = chat(mock, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert [(entry["token"], entry["logprob"]) for entry in entries] == [("yes", -0.5), (" it", -1.0), (" is", -2.0)]


def test_any_number_of_tokens(mock: MockProvider) -> None:
    mock.play(Reply(text="long", token_count=2000, message_tokens=True))
    message = chat(mock)["choices"][0]["message"]
    assert len(message["generation_token_ids"]) == len(message["generation_log_probs"]) == 2000
    (item,) = post(mock, "/v1/responses", {"input": "x"})["output"]
    assert len(item["generation_token_ids"]) == 2000


def test_replies_in_order_then_rules_then_default(mock: MockProvider) -> None:
    rules = (Rule("sum", (Reply(text="42"),), first=(Reply(text="let me see"),)),)
    mock.play(Script(default=(Reply(text="default"),), replies=(Reply(text="one"), Reply(text="two")), rules=rules))
    texts = [chat_text(mock, user("a sum please")) for _ in range(4)]
    assert [*texts, chat_text(mock)] == ["one", "two", "let me see", "42", "default"]


def test_turns_follow_the_dialogue(mock: MockProvider) -> None:
    call = Reply(text=None, tool_calls=(ToolCall("look"),))
    mock.play(Script(rules=(Rule("weather", (call, Reply(text="cold"), Reply(text="too far"))),)))
    history = [user("weather?"), chat(mock, [user("weather?")])["choices"][0]["message"]]
    assert history[1]["tool_calls"]
    assert chat_text(mock, *history, {"role": "tool", "tool_call_id": "x", "content": "-3"}) == "cold"
    items = [user("weather?"), {"type": "reasoning"}, {"type": "function_call"}, {"type": "function_call_output"}]
    assert post(mock, "/v1/responses", {"input": items})["output"][0]["content"][0]["text"] == "cold"
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "-3"}]}
    answer = post(mock, "/v1/messages", {"messages": [*history, result]})
    assert answer["content"] == [{"type": "text", "text": "cold"}]


def test_every_nth(mock: MockProvider) -> None:
    mock.play(Script(every_n=3, every_reply=Reply(text="third")))
    assert [chat_text(mock) for _ in range(4)] == ["Mock answer.", "Mock answer.", "third", "Mock answer."]


def test_raw_replaces_the_body(mock: MockProvider) -> None:
    mock.play(Reply(raw={"choices": []}))
    assert chat(mock) == {"choices": []}


def test_models(mock: MockProvider) -> None:
    mock.play(Script(model="tiny"))
    assert httpx.get(mock.base_url + "/models").json()["data"][0]["id"] == "tiny"


def test_script_from_json() -> None:
    script = parse_script(
        {
            "default": ["a", {"text": "b", "logprobs": [-1, -2]}],
            "when": [{"contains": "x", "reply": {"fault": 429, "tool_calls": [{"name": "t"}]}, "first": ["c"]}],
            "every": {"n": 2, "reply": {"fault": "drop"}},
            "latency": 0.5,
        }
    )
    assert script.default == (Reply(text="a"), Reply(text="b", logprobs=(-1, -2)))
    (rule,) = script.rules
    assert rule.turns == (Reply(fault=Fault(status=429), tool_calls=(ToolCall("t"),)),)
    assert rule.first == (Reply(text="c"),)
    assert script.every_reply == Reply(fault=Fault("drop"))
    assert (script.every_n, script.latency) == (2, 0.5)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"replys": []}, "replys"),
        ({"default": {"txt": "a"}}, "txt"),
        ({"when": [{"contains": "a"}]}, "needs contains and reply"),
        ({"default": {"fault": {"kin": "drop"}}}, "kin"),
        ({"default": {"tool_calls": [{}]}}, "name"),
        ([], "expected an object"),
    ],
)
def test_a_wrong_script_is_named(script: Any, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        parse_script(script)
