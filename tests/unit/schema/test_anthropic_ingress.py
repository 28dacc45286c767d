"""Messages clients in front of any model server."""

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter, ValidationError

from nemo_gym.anthropic_converter import AnthropicConverter
from nemo_gym.anthropic_utils import NeMoGymAnthropicMessage, NeMoGymAnthropicMessageCreateParamsNonStreaming
from nemo_gym.errors import GymError
from tests.unit.schema.examples import output_message, response

CONVERTER = AnthropicConverter()
BODY: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
IMAGE_PART = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}


def request(**fields: Any) -> dict[str, Any]:
    return CONVERTER.anthropic_request_to_responses({**BODY, **fields}).model_dump(exclude_unset=True)


def items(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = request(messages=list(messages))["input"]
    return found


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_the_plain_fields() -> None:
    assert request(temperature=0.5, top_p=0.9, top_k=3, stop_sequences=["x"], metadata={"user_id": "u"}) == {
        "model": "m",
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "input": [{"type": "message", "role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize("system", ["a\nb", [text("a"), text("b")]])
def test_system_becomes_instructions(system: Any) -> None:
    assert request(system=system)["instructions"] == "a\nb"


def test_tools_become_functions() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tools = [{"name": "f", "description": "d", "input_schema": schema}, {"name": "g"}]

    assert request(tools=tools)["tools"] == [
        {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": False},
        {
            "type": "function",
            "name": "g",
            "description": None,
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "f"}, {"type": "function", "name": "f"}),
    ],
)
def test_tool_choice(choice: dict[str, Any], expected: Any) -> None:
    assert request(tools=[{"name": "f"}], tool_choice=choice)["tool_choice"] == expected


def test_parallel_calls_can_be_switched_off() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}

    assert request(tools=[{"name": "f"}], tool_choice=choice)["parallel_tool_calls"] is False


def test_text_and_images_are_grouped() -> None:
    assert items(user(text("a")))[0]["content"] == "a"
    assert items(user(text("a"), IMAGE, text("b")))[0]["content"] == [
        {"type": "input_text", "text": "a"},
        IMAGE_PART,
        {"type": "input_text", "text": "b"},
    ]


def test_blocks_of_the_assistant() -> None:
    blocks = [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        text("a"),
        text("b"),
        {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
    ]

    reasoning, message, call = items({"role": "assistant", "content": blocks})

    assert reasoning["id"].startswith("rs_")
    assert {**reasoning, "id": ""} == {
        "type": "reasoning",
        "id": "",
        "summary": [{"type": "summary_text", "text": "t"}],
        "encrypted_content": "s",
    }
    assert message == {"type": "message", "role": "assistant", "content": "ab"}
    assert call == {"type": "function_call", "id": "c", "call_id": "c", "name": "f", "arguments": '{"x": 1}'}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ""),
        ("x", "x"),
        ([text("a"), text("b")], "a\nb"),
        ([text("a"), IMAGE], [{"type": "input_text", "text": "a"}, IMAGE_PART]),
    ],
)
def test_tool_results(content: Any, expected: Any) -> None:
    block = {"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": True}

    output, after = items(user(block, text("next")))

    assert output == {"type": "function_call_output", "call_id": "c", "output": expected}
    assert after["content"] == "next"


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [user({"type": "document"})]},
        {"messages": [user({"type": "image", "source": {"type": "url", "url": "http://i"}})]},
        {"messages": [user({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ""}})]},
        {"messages": [user({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "document"}]})]},
        {"tool_choice": {"type": "odd"}},
        {"system": [{"type": "image"}]},
    ],
)
def test_what_has_no_form_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError) as caught:
        request(**fields)

    assert isinstance(caught.value, GymError)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user"}]},
        {"messages": [{"content": "x"}]},
        {"messages": ["x"]},
        {"messages": [user({"type": "text"})]},
        {"messages": [user({"type": "tool_use"})]},
        {"messages": 5},
        {"messages": [{"role": "wizard", "content": "x"}]},
        {"tools": [{}]},
        {"tools": [5]},
        {"tool_choice": "auto"},
        {"system": 5},
        {"temperature": "warm"},
    ],
)
def test_a_malformed_body_is_the_clients_mistake(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Messages request") as caught:
        request(**fields)

    assert isinstance(caught.value, GymError)


def answer(*output: Any, **fields: Any) -> dict[str, Any]:
    return CONVERTER.responses_to_anthropic_response(response(*output, **fields), "claude")


CALL = {"type": "function_call", "call_id": "c", "id": "i", "name": "f", "arguments": '{"x": 1}'}
REASONING = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]}


def test_a_response_as_a_message() -> None:
    usage = {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": None},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 7,
    }

    found = answer({**REASONING, "encrypted_content": "s"}, output_message("a"), CALL, usage=usage)

    assert found == {
        "id": "resp_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    Message.model_validate(found)


@pytest.mark.parametrize(
    ("output", "fields", "expected"),
    [
        ([output_message()], {}, "end_turn"),
        ([CALL], {}, "tool_use"),
        ([CALL], {"incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
        ([output_message()], {"incomplete_details": {"reason": "content_filter"}}, "refusal"),
    ],
)
def test_stop_reason(output: list[Any], fields: dict[str, Any], expected: str) -> None:
    found = answer(*output, **fields)

    assert found["stop_reason"] == expected
    assert found["usage"] == {"input_tokens": 0, "output_tokens": 0}


def test_a_refusal_is_text_and_missing_signatures_are_empty() -> None:
    refusal = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "no"}]}

    assert answer(REASONING, refusal)["content"] == [
        {"type": "thinking", "thinking": "t", "signature": ""},
        {"type": "text", "text": "no"},
    ]


@pytest.mark.parametrize("arguments", ["[1]", "5", "not json"])
def test_arguments_must_be_an_object(arguments: str) -> None:
    with pytest.raises(ValueError, match="arguments"):
        answer({**CALL, "arguments": arguments})


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, "function_call_output"),
        ({"type": "message", "role": "user", "content": "x"}, "user"),
    ],
)
def test_other_items_have_no_form(item: dict[str, Any], named: str) -> None:
    with pytest.raises(NotImplementedError, match=named):
        answer(item)


def frames(message: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    split = [frame.split("\n") for frame in CONVERTER.anthropic_response_to_sse(message)]
    assert all(lines[2:] == ["", ""] for lines in split)
    return [(e.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for e, data, *_ in split]


def test_a_message_is_replayed_event_by_event() -> None:
    usage = {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": None},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 7,
    }
    found = frames(answer({**REASONING, "encrypted_content": "s"}, output_message("a"), CALL, usage=usage))

    assert [event for event, _ in found] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop") * 2,
        "message_delta",
        "message_stop",
    ]
    events: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    assert all(events.validate_python(payload).type == event for event, payload in found)
    assert found[0][1]["message"]["content"] == []
    starts = [payload["content_block"] for event, payload in found if event == "content_block_start"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "c", "name": "f", "input": {}},
    ]
    deltas = [payload["delta"] for event, payload in found if event == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "t"},
        {"type": "signature_delta", "signature": "s"},
        {"type": "text_delta", "text": "a"},
        {"type": "input_json_delta", "partial_json": '{"x": 1}'},
    ]
    assert found[-2][1]["delta"]["stop_reason"] == "tool_use"
    assert found[-2][1]["usage"] == {"output_tokens": 4}


def test_the_frame_writer_is_looked_up_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnthropicConverter, "_sse_event", lambda self, event_type, data: event_type)

    assert next(CONVERTER.anthropic_response_to_sse(answer(output_message()))) == "message_start"


def test_a_turn_of_the_client_comes_back_as_it_was() -> None:
    message = answer({**REASONING, "encrypted_content": "s"}, output_message("a"), CALL)

    again = items({"role": "assistant", "content": message["content"]})

    assert [item["type"] for item in again] == ["reasoning", "message", "function_call"]
    assert again[0]["encrypted_content"] == "s"
    assert again[2]["arguments"] == CALL["arguments"]


def test_the_strict_request_refuses_unknown_keys() -> None:
    assert NeMoGymAnthropicMessageCreateParamsNonStreaming.model_validate(BODY).max_tokens == 9
    with pytest.raises(ValidationError, match="bogus"):
        NeMoGymAnthropicMessageCreateParamsNonStreaming.model_validate({**BODY, "bogus": 1})


def test_a_message_keeps_what_it_does_not_know() -> None:
    message = {**answer(output_message()), "bogus": 1}

    assert NeMoGymAnthropicMessage.model_validate(message).model_dump(exclude_unset=True) == message
