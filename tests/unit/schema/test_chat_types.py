"""The chat request is strict, the chat completion lenient."""

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymChatCompletionCreateParamsNonStreaming
from tests.unit.schema.examples import TOKENS, completion, tool_call

TEXT = {"type": "text", "text": "x"}


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    body = {"messages": list(messages), **fields}
    return NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(body).model_dump(exclude_unset=True)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "developer", "content": "x"},
        {"role": "system", "content": [TEXT]},
        {"role": "user", "content": "x", "name": "n"},
        {"role": "user", "content": [TEXT, {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "d", "format": "opus"}}]},
        {"role": "user", "content": [{"type": "video_url", "video_url": "u"}]},
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "u"}}]},
        {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]},
        {"role": "assistant"},
        {"role": "assistant", "content": None, "tool_calls": [tool_call()]},
        {"role": "assistant", "content": [TEXT, {"type": "refusal", "refusal": "no"}], "refusal": None},
        {"role": "assistant", "content": "x", "reasoning_content": "r"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "n", "input": "i"}}]},
        {"role": "assistant", "content": "x", **TOKENS, "routed_experts": "x"},
        {"role": "tool", "content": [TEXT], "tool_call_id": "c"},
    ],
)
def test_valid_messages_come_back_as_they_were(message: dict[str, Any]) -> None:
    assert chat(message)["messages"] == [message]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"content": "x"},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "developer", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "user", "content": [{**TEXT, "cache_control": {}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "bogus": 1}}]},
        {"role": "tool", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]},
        {"role": "assistant", "prompt_token_ids": [1]},
        {"role": "assistant", **TOKENS, "generation_token_ids": ["x"]},
        {"role": "user", "content": "x", **TOKENS},
        *({"role": role, "content": "x", "bogus": 1} for role in ("developer", "system", "user", "assistant")),
        {"role": "tool", "content": "x", "tool_call_id": "c", "bogus": 1},
        "x",
    ],
)
def test_invalid_messages_are_refused(message: Any) -> None:
    with pytest.raises(ValidationError):
        chat(message)


def test_a_name_beside_a_call_is_taken_away() -> None:
    (message,) = chat({"role": "assistant", "tool_calls": [{**tool_call(), "name": "look"}]})["messages"]

    assert message["tool_calls"] == [tool_call()]


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template_kwargs": {"a": 1}, "thinking": {"b": 2}, "output_config": {"c": 3}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": None}, "strict": None}}]},
        {"tools": [{"type": "custom", "custom": {"name": "c"}}]},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
        {"stop": "x", "n": 2, "seed": 1, "logit_bias": {"1": 2}, "max_tokens": 5, "max_completion_tokens": 6},
        {"stop": ["x", "y"], "metadata": {"a": "b"}, "stream": False},
        {"web_search_options": {"search_context_size": "low"}, "modalities": ["text"]},
    ],
)
def test_valid_fields_come_back_as_they_were(fields: dict[str, Any]) -> None:
    assert chat(**fields) == {"messages": [], **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"bogus": 1},
        {"functions": []},
        {"stream": True},
        {"metadata": {"a": 1}},
        {"tools": [{"type": "function", "function": {"name": "f"}, "bogus": 1}]},
        {"tools": [{"type": "function", "function": {}}]},
        {"tool_choice": "sometimes"},
        {"reasoning_effort": "immense"},
        {"response_format": {"type": "json_schema"}},
    ],
)
def test_invalid_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        chat(**fields)


def test_a_completion_keeps_what_it_does_not_know() -> None:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {
            "role": "assistant",
            "content": "x",
            "reasoning_content": "r",
            "tool_calls": [{**tool_call(), "x": 1}],
        },
        "logprobs": {"content": [{"token": "t", "logprob": -0.5, "bytes": None, "top_logprobs": []}], "y": 1},
        "stop_reason": 7,
    }
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": 0.5},
        "prompt_logprobs": None,
    }

    found = NeMoGymChatCompletion.model_validate(body)

    assert found.model_dump(exclude_unset=True) == body
    logprobs = found.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None and logprobs.content[0].logprob == -0.5


@pytest.mark.parametrize("message", [None, {}, {"role": None}, {"content": None}])
def test_a_message_without_anything_is_empty(message: Any) -> None:
    found = completion(message).choices[0].message

    assert (found.role, found.content, found.tool_calls) == ("assistant", None, None)
