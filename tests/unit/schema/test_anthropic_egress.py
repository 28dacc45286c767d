"""Anthropic backends behind a model server."""

from typing import Any

import pytest
from anthropic.types import Message

from nemo_gym.anthropic_converter import AnthropicConverter
from tests.unit.schema.examples import FUNCTION_TOOL, output_message, request

CONVERTER = AnthropicConverter()
PNG = "data:image/png;base64,AAAA"


def sent(
    *,
    model: str = "claude",
    thinking: dict[str, Any] | None = None,
    budget: int | None = None,
    extra_body: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    return CONVERTER.responses_to_anthropic(request(**fields), model, 100, thinking, budget, extra_body or {})


def image(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "auto"}]}


def test_a_string_and_the_defaults() -> None:
    assert sent(input="hi") == {
        "model": "claude",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }


def test_the_request_wins_over_the_extra_body() -> None:
    found = sent(max_output_tokens=5, temperature=0.5, extra_body={"max_tokens": 7, "temperature": 1, "top_k": 3})

    assert (found["max_tokens"], found["temperature"], found["top_k"]) == (5, 0.5, 3)


def test_a_conversation() -> None:
    found = sent(
        instructions="a",
        input=[
            {"role": "developer", "content": [{"type": "input_text", "text": "b"}]},
            {"role": "user", "content": "q"},
            {"role": "user", "content": "more"},
            {
                "type": "reasoning",
                "id": "r",
                "summary": [{"type": "summary_text", "text": "t"}],
                "encrypted_content": "s",
            },
            output_message("x"),
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"y": 1}'},
            {"type": "function_call_output", "call_id": "c", "output": "seen"},
            {"role": "user", "content": "go on"},
        ],
    )

    assert found["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert found["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "more"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "text", "text": "x"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"y": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "seen"},
                {"type": "text", "text": "go on"},
            ],
        },
    ]


@pytest.mark.parametrize(("url", "media_type"), [(PNG, "image/png"), ("data:image/jpg;base64,AAAA", "image/jpeg")])
def test_images(url: str, media_type: str) -> None:
    (message,) = sent(input=[image(url)])["messages"]

    source = {"type": "base64", "media_type": media_type, "data": "AAAA"}
    assert message["content"] == [{"type": "image", "source": source}]


@pytest.mark.parametrize(
    "url", ["http://i", "data:image/bmp;base64,AAAA", "data:image/png;base64,AA!AA", "data:image/png;base64,"]
)
def test_other_images_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="image"):
        sent(input=[image(url)])


def test_tools_and_choice() -> None:
    found = sent(tools=[FUNCTION_TOOL], tool_choice={"type": "function", "name": "look"}, parallel_tool_calls=False)

    assert found["tools"] == [
        {"name": "look", "description": "Looks.", "input_schema": FUNCTION_TOOL["parameters"]},
    ]
    assert found["tool_choice"] == {"type": "tool", "name": "look", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(("choice", "expected"), [("auto", "auto"), ("none", "none"), ("required", "any")])
def test_choice_by_mode(choice: str, expected: str) -> None:
    assert sent(tools=[FUNCTION_TOOL], tool_choice=choice)["tool_choice"] == {"type": expected}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search"}]},
        {"tools": [FUNCTION_TOOL], "tool_choice": {"type": "file_search"}},
        {"input": [{"type": "compaction", "encrypted_content": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        {"input": [{"role": "system", "content": [{"type": "input_image", "image_url": PNG, "detail": "auto"}]}]},
    ],
)
def test_what_has_no_form_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError):
        sent(**fields)


@pytest.mark.parametrize("model", ["claude-opus-4-7", "eu.claude-opus-4-8-v1"])
@pytest.mark.parametrize("fields", [{"temperature": 0.5}, {"top_p": 0.5}, {"extra_body": {"top_k": 3}}])
def test_some_models_take_no_sampling_parameters(model: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not accept"):
        sent(model=model, **fields)

    assert sent(model="claude", **fields)


def test_thinking_from_any_one_place() -> None:
    setting = {"type": "adaptive"}

    assert sent(thinking=setting)["thinking"] == setting
    assert sent(extra_body={"thinking": setting})["thinking"] == setting
    assert sent(budget=9)["thinking"] == {"type": "enabled", "budget_tokens": 9}


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "adaptive"}, "budget": 9},
        {"thinking": {"type": "adaptive"}, "extra_body": {"thinking": {}}},
        {"budget": 9, "extra_body": {"thinking": {}}},
    ],
)
def test_thinking_from_two_places_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="thinking"):
        sent(**fields)


def received(*content: dict[str, Any], **fields: Any) -> Any:
    usage = {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 2}
    message = {
        "id": "msg_a",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
        **fields,
    }
    return CONVERTER.anthropic_to_responses(message, request(tools=[FUNCTION_TOOL]), "asked")


def test_a_message_as_a_response() -> None:
    found = received(
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
        {"type": "text", "text": "d"},
    )

    reasoning, first, call, last = found.output
    assert (reasoning.summary[0].text, reasoning.encrypted_content) == ("t", "s")
    assert (first.content[0].text, last.content[0].text) == ("ab", "d")
    assert (call.call_id, call.id, call.name, call.arguments, call.status) == ("c", "c", "f", '{"x": 1}', "completed")
    assert (found.id, found.model, found.status) == ("msg_a", "asked", None)
    assert found.tools[0].name == "look"
    assert found.usage.model_dump() == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 7,
    }


def test_an_empty_message_is_one_empty_message() -> None:
    (item,) = received().output

    assert [part.text for part in item.content] == [""]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("end_turn", None),
        ("tool_use", None),
        ("max_tokens", "max_output_tokens"),
        ("model_context_window_exceeded", "max_output_tokens"),
        ("refusal", "content_filter"),
    ],
)
def test_stop_reason(stop: str, expected: str | None) -> None:
    details = received(stop_reason=stop).incomplete_details

    assert (details and details.reason) == expected


def test_other_blocks_have_no_form() -> None:
    with pytest.raises(NotImplementedError, match="server_tool_use"):
        received({"type": "server_tool_use"})


def test_what_came_is_sent_back_as_it_came() -> None:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
    ]

    items = received(*content).model_dump(exclude_unset=True)["output"]

    assert sent(input=items)["messages"] == [{"role": "assistant", "content": content}]


def test_the_vendors_message_is_read() -> None:
    message = Message.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [{"type": "text", "text": "a"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )

    found = CONVERTER.anthropic_to_responses(message.model_dump(), request(), "m")

    assert found.output_text == "a"
