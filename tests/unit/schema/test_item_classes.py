"""The same dict becomes the same class as in NeMo Gym 0.7."""

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym import openai_utils as wire
from nemo_gym.openai_utils import NeMoGymResponseInputItem, NeMoGymResponseOutputItem

INPUT: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseInputItem)
OUTPUT: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseOutputItem)

INPUT_PART = {"type": "input_text", "text": "hi"}
OUTPUT_PART = {"type": "output_text", "text": "hi", "annotations": []}
TOKENS = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}

Cases = list[tuple[dict[str, Any], type[BaseModel]]]

TYPED: Cases = [
    ({"type": "message", "role": "user", "content": "hi"}, wire.NeMoGymEasyInputMessage),
    ({"type": "message", "role": "user", "content": [INPUT_PART]}, wire.NeMoGymEasyInputMessage),
    ({"type": "message", "role": "user", "content": [INPUT_PART], "status": "completed"}, wire.NeMoGymMessage),
    ({"type": "message", "role": "system", "content": "hi", "status": "completed"}, wire.NeMoGymEasyInputMessage),
    ({"type": "message", "role": "developer", "content": [INPUT_PART], "status": "odd"}, wire.NeMoGymEasyInputMessage),
    ({"type": "message", "role": "assistant", "content": "hi"}, wire.NeMoGymEasyInputMessage),
    ({"type": "message", "role": "assistant", "content": [INPUT_PART]}, wire.NeMoGymEasyInputMessage),
    ({"type": "message", "id": "m", "role": "assistant", "content": [OUTPUT_PART]}, wire.NeMoGymResponseOutputMessage),
    ({"type": "message", "id": "m", "content": [{"refusal": "no"}]}, wire.NeMoGymResponseOutputMessage),
    ({"type": "message", "id": "m", "role": "assistant", "content": []}, wire.NeMoGymResponseOutputMessage),
    ({"type": "message", "role": "assistant", "content": []}, wire.NeMoGymEasyInputMessage),
    ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, wire.NeMoGymResponseFunctionToolCall),
    ({"type": "function_call_output", "call_id": "c", "output": "x"}, wire.NeMoGymFunctionCallOutput),
    ({"type": "reasoning", "id": "r", "summary": []}, wire.NeMoGymResponseReasoningItem),
    ({"type": "mcp_call", "name": "f", "arguments": "{}"}, wire.NeMoGymResponseMcpCall),
    ({"type": "mcp_list_tools"}, wire.NeMoGymResponseMcpListTools),
    ({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}, wire.NeMoGymResponseCustomToolCall),
    ({"type": "compaction", "encrypted_content": "x"}, wire.NeMoGymResponseCompactionItem),
]

UNTYPED_INPUT: Cases = [
    ({"role": "user", "content": "hi"}, wire.NeMoGymEasyInputMessage),
    ({"role": "user", "content": [INPUT_PART]}, wire.NeMoGymEasyInputMessage),
    ({"role": "user", "content": [INPUT_PART], "status": "incomplete"}, wire.NeMoGymMessage),
    ({"role": "assistant", "content": "hi"}, wire.NeMoGymEasyInputMessage),
    ({"role": "assistant", "id": "m", "content": [OUTPUT_PART]}, wire.NeMoGymResponseOutputMessage),
    ({"role": "assistant", "content": [OUTPUT_PART]}, wire.NeMoGymResponseMcpListTools),
    ({"id": "m", "content": [OUTPUT_PART]}, wire.NeMoGymResponseOutputMessage),
    ({"id": "m", "content": []}, wire.NeMoGymResponseOutputMessage),
    ({"id": "m", "content": [{"text": "hi", "annotations": []}]}, wire.NeMoGymResponseOutputMessage),
    ({"call_id": "c", "name": "f", "arguments": "{}"}, wire.NeMoGymResponseFunctionToolCall),
    ({"name": "f", "arguments": "{}"}, wire.NeMoGymResponseMcpCall),
    ({"call_id": "c", "output": "x"}, wire.NeMoGymFunctionCallOutput),
    ({"id": "r", "summary": []}, wire.NeMoGymResponseReasoningItem),
    ({"role": "tool", "content": "x", "tool_call_id": "c"}, wire.NeMoGymResponseMcpListTools),
    ({"role": "assistant", "content": None, "tool_calls": []}, wire.NeMoGymResponseMcpListTools),
    ({"anything": 1}, wire.NeMoGymResponseMcpListTools),
]

OUTPUT_ONLY: Cases = [
    (
        {"type": "function_call_output", "id": "i", "call_id": "c", "output": "x", "status": "completed"},
        wire.NeMoGymResponseFunctionCallOutput,
    ),
    (
        {"type": "function_call_output", "id": "i", "call_id": "c", "output": "x"},
        wire.NeMoGymFunctionCallOutput,
    ),
    (
        {"type": "custom_tool_call_output", "id": "i", "call_id": "c", "output": "x", "status": "completed"},
        wire.NeMoGymResponseCustomToolCallOutputItem,
    ),
]


@pytest.mark.parametrize(("data", "expected"), TYPED + UNTYPED_INPUT)
def test_input_item_class(data: dict[str, Any], expected: type[BaseModel]) -> None:
    assert type(INPUT.validate_python(data)) is expected


@pytest.mark.parametrize(("data", "expected"), TYPED + OUTPUT_ONLY)
def test_output_item_class(data: dict[str, Any], expected: type[BaseModel]) -> None:
    assert type(OUTPUT.validate_python(data)) is expected


@pytest.mark.parametrize(("data", "_"), UNTYPED_INPUT)
def test_an_untyped_output_item_is_refused(data: dict[str, Any], _: Any) -> None:
    with pytest.raises(ValidationError):
        OUTPUT.validate_python(data)


@pytest.mark.parametrize("adapter", [INPUT, OUTPUT])
@pytest.mark.parametrize("data", [{"type": "no_such_item"}, {"type": 5}, {"type": ["message"]}, "text", 7, None])
def test_what_is_no_item_is_refused(adapter: TypeAdapter[Any], data: Any) -> None:
    with pytest.raises(ValidationError):
        adapter.validate_python(data)


@pytest.mark.parametrize("adapter", [INPUT, OUTPUT])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"type": "message", "role": "user", "content": "hi"}, wire.NeMoGymEasyInputMessageForTraining),
        (
            {"type": "message", "role": "user", "content": [INPUT_PART], "status": "completed"},
            wire.NeMoGymMessageForTraining,
        ),
        ({"type": "message", "id": "m", "content": [OUTPUT_PART]}, wire.NeMoGymResponseOutputMessageForTraining),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            wire.NeMoGymResponseFunctionToolCallForTraining,
        ),
        ({"type": "reasoning", "id": "r", "summary": []}, wire.NeMoGymResponseReasoningItemForTraining),
    ],
)
def test_tokens_choose_the_training_class(
    adapter: TypeAdapter[Any], data: dict[str, Any], expected: type[BaseModel]
) -> None:
    item = adapter.validate_python({**data, **TOKENS})

    assert type(item) is expected
    assert item.model_dump()["generation_log_probs"] == [-0.5]


def test_an_instance_keeps_its_class() -> None:
    item = wire.NeMoGymResponseReasoningItem(id="r", summary=[])

    assert OUTPUT.validate_python(item) is item


def test_an_instance_of_a_subclass_is_taken_as_its_base() -> None:
    class Labelled(wire.NeMoGymEasyInputMessage):
        label: str

    item = Labelled(role="user", content="hi", label="x")

    assert INPUT.validate_python(item) is item
    assert OUTPUT.validate_python(item) is item


def test_a_chat_shaped_item_keeps_all_its_keys() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    data = {"role": "assistant", "content": None, "tool_calls": [call]}

    assert INPUT.validate_python(data).model_dump(exclude_unset=True) == data


def test_reasoning_never_has_a_status() -> None:
    item = OUTPUT.validate_python({"type": "reasoning", "id": "r", "summary": [], "status": "completed"})

    assert "status" not in item.model_dump()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_video", "video_url": "http://v"},
        {"type": "input_video", "video": {"url": "http://v"}},
        {"type": "input_image", "image_url": "http://i", "detail": "auto"},
        {"type": "input_file", "file_id": "f"},
    ],
)
def test_input_parts_are_plain_dicts(part: dict[str, Any]) -> None:
    item = INPUT.validate_python({"role": "user", "content": [part]})

    assert item.content == [part]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_video"},
        {"type": "input_video", "video_url": ""},
        {"type": "input_video", "video": {"url": ""}},
        {"type": "input_video", "video_url": "http://v", "video": "http://v"},
        {"type": "input_image", "image_url": "http://i"},
        {"type": "input_image", "image_url": {"url": "http://i"}, "detail": "auto"},
        {"type": "odd"},
        {"text": "untyped"},
    ],
)
def test_a_wrong_input_part_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        INPUT.validate_python({"role": "user", "content": [part]})


def test_output_text_needs_annotations() -> None:
    with pytest.raises(ValidationError, match="annotations"):
        wire.NeMoGymResponseOutputText.model_validate({"type": "output_text", "text": "hi"})


@pytest.mark.parametrize(
    ("cls", "change"),
    [
        (wire.NeMoGymMessage, {"role": "assistant"}),
        (wire.NeMoGymMessage, {"status": "odd"}),
        (wire.NeMoGymEasyInputMessage, {"role": "tool"}),
        (wire.NeMoGymEasyInputMessage, {"phase": "odd"}),
        (wire.NeMoGymResponseOutputMessage, {"role": "user"}),
        (wire.NeMoGymResponseOutputMessage, {"id": None}),
    ],
)
def test_fields_of_messages_are_checked(cls: type[BaseModel], change: dict[str, Any]) -> None:
    content = [OUTPUT_PART] if cls is wire.NeMoGymResponseOutputMessage else [INPUT_PART]
    whole = {"id": "m", "role": "assistant" if content == [OUTPUT_PART] else "user", "content": content}

    assert cls.model_validate(whole)
    with pytest.raises(ValidationError):
        cls.model_validate({**whole, **change})
