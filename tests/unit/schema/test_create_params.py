"""The Responses request: what it refuses, and what it mends so that answers can be sent back."""

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym import openai_utils as wire
from tests.unit.schema.examples import FUNCTION_TOOL, TOKENS, output_message, request


@pytest.mark.parametrize(
    "body",
    [
        {"bogus": 1},
        {"reasoning": {"bogus": 1}},
        {"text": {"format": {"type": "text", "bogus": 1}}},
        {"metadata": {"a": 1}},
        {"stream": True},
        {"input": None},
        {"tools": [{"type": "function", "name": "f"}]},
        {"tools": [{"type": "function", "name": "f", "parameters": {}}]},
        {"tools": [{**FUNCTION_TOOL, "bogus": 1}]},
        {"tools": [{"type": "no_such_tool"}]},
        {"tools": [{"name": "untyped"}]},
        {"tool_choice": "sometimes"},
        {"tool_choice": {"type": "function"}},
        {"text": {"format": {"type": "json_schema", "name": "n"}}},
        {"service_tier": "gold"},
        {"truncation": "some"},
    ],
)
def test_is_strict(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request(**body)


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"type": "function", "name": "f", "parameters": None, "strict": None}]},
        {"tools": [{"type": "web_search", "whatever": {"a": 1}}]},
        {"tools": [{"type": "custom", "name": "c", "format": {"type": "text"}}]},
        {"tool_choice": {"type": "function", "name": "f"}},
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}},
        {"tool_choice": {"type": "mcp", "server_label": "s"}},
        {"tool_choice": {"type": "file_search"}},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
        {"prompt": {"id": "p", "variables": {"a": "b", "c": {"type": "input_text", "text": "d"}}}},
        {"conversation": "conv"},
        {"conversation": {"id": "conv"}},
        {"context_management": [{"type": "compaction", "compact_threshold": 5}]},
        {"stream": False},
        {"temperature": None, "top_logprobs": None, "metadata": None},
    ],
)
def test_a_valid_body_comes_back_as_it_was(body: dict[str, Any]) -> None:
    assert request(**body).model_dump(exclude_unset=True) == {"input": "hi", **body}


def test_defaults() -> None:
    params = request()

    assert (params.parallel_tool_calls, params.tool_choice, params.tools, params.stream) == (True, "auto", [], None)


def test_unknown_keys_of_input_items_and_their_parts_are_left_behind() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi", "cache_control": {}}], "bogus": 1},
        output_message(policy_epoch=3),
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "bogus": 1},
        {"type": "function_call_output", "call_id": "c", "output": "x", "bogus": 1},
        {"type": "reasoning", "id": "r", "summary": [], "status": None},
    ]

    dumped = request(input=items).model_dump(exclude_unset=True)["input"]

    assert dumped == [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        output_message(),
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "reasoning", "id": "r", "summary": []},
    ]


def test_tool_calls_of_a_chat_shaped_message_with_text_are_kept() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    item = {"role": "assistant", "content": "wait", "tool_calls": [call]}

    params = request(input=[item])

    assert type(params.input[0]) is wire.NeMoGymEasyInputMessage
    assert params.model_dump(exclude_unset=True)["input"] == [item]


def test_token_bundles_ride_along() -> None:
    found = request(input=[output_message(**TOKENS)]).input[0]

    assert isinstance(found, wire.NeMoGymResponseOutputMessageForTraining)
    assert found.prompt_token_ids == TOKENS["prompt_token_ids"]


def test_models_in_the_input_are_read_like_their_dump() -> None:
    part = wire.NeMoGymResponseOutputText(text="hi", annotations=[])
    items: list[Any] = [
        wire.NeMoGymEasyInputMessage(role="user", content="hi"),
        wire.NeMoGymResponseOutputMessage(id="m", content=[part]),
        wire.NeMoGymResponseReasoningItem(id="r", summary=[wire.NeMoGymSummary(type="summary_text", text="t")]),
        wire.NeMoGymResponseFunctionToolCall(call_id="c", name="f", arguments="{}"),
        wire.NeMoGymFunctionCallOutput(call_id="c", output="x"),
    ]

    again: Any = request(input=request(input=items).model_dump(exclude_unset=True)["input"]).input

    assert [type(item) for item in again] == [type(item) for item in items]
    assert [item.model_dump() for item in again] == [item.model_dump() for item in items]


def test_the_body_given_is_not_changed() -> None:
    body = {
        "input": [{"type": "additional_tools", "role": "assistant", "tools": [{"type": "function", "name": "f"}]}],
        "tools": [{**FUNCTION_TOOL, "defer_loading": None}],
    }
    before = repr(body)

    params = wire.NeMoGymResponseCreateParamsNonStreaming.model_validate(body)

    assert repr(body) == before
    assert params.tools[0].get("defer_loading") is False
    assert params.input[0].role == "developer"  # type: ignore[union-attr]


def test_nulls_of_defer_loading_inside_items_become_false() -> None:
    tool = {"type": "function", "name": "f", "defer_loading": None}

    found = request(input=[{"type": "tool_search_output", "tools": [tool]}]).model_dump(exclude_unset=True)

    assert found["input"][0]["tools"][0]["defer_loading"] is False


def test_a_failed_computer_call_output_loses_its_status() -> None:
    item = {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}

    params = request(input=[{**item, "status": "failed"}, {**item, "status": "completed"}])

    assert params.model_dump(exclude_unset=True)["input"] == [item, {**item, "status": "completed"}]


@pytest.mark.parametrize("kind", [["message"], {"a": 1}, 3])
def test_a_type_that_is_no_text_is_refused(kind: Any) -> None:
    with pytest.raises(ValidationError):
        request(input=[{"type": kind, "content": "x"}])


def test_unknown_fields_of_each_own_item_are_left_out() -> None:
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": "q", "extra": 1},
        {"type": "message", "role": "user", "content": "q"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "extra": 1},
        {"type": "function_call_output", "call_id": "c", "output": "o", "extra": 1},
        {"type": "reasoning", "id": "r", "summary": [], "extra": 1},
    ]
    sent = request(input=items).model_dump(exclude_unset=True)["input"]
    assert sent == [{key: value for key, value in item.items() if key != "extra"} for item in items]
