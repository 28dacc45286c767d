"""Histories that are read where they are give what a converter's hooks give, byte for byte."""

import re
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nemo_gym.openai_utils import (
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymEasyInputMessage,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseReasoningItem,
    NeMoGymResponseReasoningItemForTraining,
)
from nemo_gym.responses_converter import ResponsesConverter, ResponsesConverterState
from nemo_gym.schema import responses_to_chat
from tests.unit.schema.examples import FUNCTION_TOOL, TOKENS, completion, output_message, request

IMAGE = {"type": "input_image", "image_url": "http://i", "detail": "auto"}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "question"},
    {"role": "system", "content": "rules"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "more"}]},
    {"type": "message", "role": "user", "status": "completed", "content": [{"type": "input_text", "text": "x"}, IMAGE]},
    {"type": "message", "role": "user", "content": "tokens", **TOKENS},
    {"role": "assistant", "content": "said"},
    {"role": "assistant", "content": [{"type": "input_text", "text": "part"}]},
    {"role": "assistant", "content": "", **TOKENS, "routed_experts": "e"},
    {**output_message("a"), "content": [{"type": "refusal", "refusal": "no"}, *output_message("b")["content"]]},
    {**output_message("c"), **TOKENS, "generation_token_ids": [8, 9]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "e"},
    {"type": "reasoning", "id": "r", "summary": [], **TOKENS},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "id": "f", "status": "completed"},
    {"type": "function_call", "call_id": "d", "name": "look", "arguments": "[", **TOKENS, "prompt_token_ids": [7]},
    {"type": "function_call_output", "call_id": "c", "output": "answer"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "answer"}]},
]
WITHOUT_FORM: list[dict[str, Any]] = [
    {"role": "assistant", "content": "x", "phase": "commentary"},
    {**output_message(), "phase": "final_answer"},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "namespace": "n"},
    {"role": "user", "content": [{**IMAGE, "image_url": None, "file_id": "f"}]},
    {"type": "function_call_output", "call_id": "c", "output": [IMAGE]},
]


class Hooked(ResponsesConverter):
    """Forms every item by the hooks."""

    def _format_item(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        super()._format_item(m, state)


def converted(cls: type[ResponsesConverter], with_tokens: bool, body: dict[str, Any]) -> bytes:
    """The chat request as it is sent; token fields, whose order nobody fixes, at the end of their message."""
    params = request(**body)
    before = params.model_dump_json()
    chat = cls(return_token_id_information=with_tokens).responses_to_chat_completion_create_params(params)
    assert params.model_dump_json() == before
    data = chat.model_dump(exclude_unset=True)
    for message in data["messages"]:
        message.update({key: message.pop(key) for key in sorted(message) if key in {*TOKENS, "routed_experts"}})
    return orjson.dumps(data)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(ITEMS), max_size=8), st.booleans(), st.booleans(), st.booleans())
def test_read_in_place_or_by_hooks(
    history: list[dict[str, Any]], with_tokens: bool, with_tools: bool, instructed: bool
) -> None:
    body: dict[str, Any] = {"input": history, "temperature": 0.5}
    body |= {"tools": [FUNCTION_TOOL], "tool_choice": "auto"} if with_tools else {}
    body |= {"instructions": "be brief"} if instructed else {}

    sent = converted(ResponsesConverter, with_tokens, body)

    assert sent == converted(Hooked, with_tokens, body)
    NeMoGymChatCompletionCreateParamsNonStreaming.model_validate_json(sent, strict=True)


@pytest.mark.parametrize("item", WITHOUT_FORM)
def test_what_has_no_form_in_chat_is_refused_in_the_same_words(item: dict[str, Any]) -> None:
    said = []
    for cls in (ResponsesConverter, Hooked):
        with pytest.raises(NotImplementedError) as caught:
            converted(cls, False, {"input": [item]})
        said.append(str(caught.value))

    assert said[0] == said[1]


@pytest.mark.parametrize(
    "item",
    [{"role": "system", "content": [IMAGE]}, {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
)
def test_parts_that_chat_refuses_are_named_by_their_place_in_the_whole_history(item: dict[str, Any]) -> None:
    said = []
    for cls in (ResponsesConverter, Hooked):
        with pytest.raises(ValueError, match=r"malformed: messages\.2\.") as caught:
            converted(cls, False, {"input": [ITEMS[0], ITEMS[5], item]})
        said.append(str(caught.value))

    assert said[0] == said[1]


def test_own_items_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(item: Any) -> Any:
        raise AssertionError(f"dumped: {item}")

    monkeypatch.setattr(responses_to_chat, "_item_data", refuse)

    assert converted(ResponsesConverter, True, {"input": ITEMS})


def test_tokens_are_not_copied() -> None:
    params = request(input=[{**output_message(), **TOKENS}])
    chat = ResponsesConverter(return_token_id_information=True).responses_to_chat_completion_create_params(params)
    item: Any = params.input[0]

    assert chat.model_dump()["messages"][0]["prompt_token_ids"] == TOKENS["prompt_token_ids"]
    message: Any = chat.messages[0]
    assert all(message[key] is getattr(item, key) for key in TOKENS)


def test_a_chat_shaped_item_among_own_ones_keeps_its_calls() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history = [ITEMS[0], {"role": "assistant", "content": "x", "tool_calls": [call]}]

    assert b'"tool_calls":[{"id":"c"' in converted(ResponsesConverter, False, {"input": history})


def test_a_chat_shaped_item_is_checked() -> None:
    with pytest.raises(ValueError, match=r"messages\.0\.assistant\.tool_calls"):
        converted(ResponsesConverter, False, {"input": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]})


@pytest.mark.parametrize(
    "item",
    [
        NeMoGymEasyInputMessage.model_validate({"role": "user", "content": "x", "vendor": 1}),
        NeMoGymResponseReasoningItem.model_validate({"id": "r", "summary": [], "vendor": 1}),
    ],
)
def test_fields_of_others_do_not_reach_chat(item: Any) -> None:
    params = request(input="x")
    params.input = [item]
    chat = ResponsesConverter(return_token_id_information=False).responses_to_chat_completion_create_params(params)

    assert "vendor" not in chat.model_dump_json()


def test_think_spans_are_found_as_the_plain_pattern_finds_them() -> None:
    plain = re.compile(r"<think>(.*?)</think>", re.DOTALL)

    @settings(deadline=None, max_examples=300)
    @given(st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "think>", "a\n", ""]), max_size=12).map("".join))
    def check(content: str) -> None:
        found = ResponsesConverter._parse_think_tags(content)
        assert found == (plain.findall(content), plain.sub("", content))

    check()


def test_a_status_is_no_field_of_reasoning() -> None:
    item = NeMoGymResponseReasoningItem.model_validate({"id": "r", "summary": [], "status": "completed", "vendor": 1})

    assert item.model_dump(exclude_unset=True) == {"id": "r", "summary": [], "vendor": 1}
    assert item.model_fields_set == {"id", "summary", "vendor"}


def test_a_bundle_of_nulls_leaves_nothing_behind() -> None:
    item = NeMoGymResponseOutputMessage.model_validate({**output_message(), **dict.fromkeys(TOKENS), "vendor": 1})

    assert item.model_dump(exclude_unset=True) == {**output_message(), "vendor": 1}
    assert item.model_fields_set.isdisjoint(TOKENS)


@pytest.mark.parametrize("tokens", [{"prompt_token_ids": [1]}, {**TOKENS, "generation_log_probs": None}])
def test_half_a_bundle_is_told_as_that_by_training_classes_too(tokens: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="come together or not at all"):
        NeMoGymResponseReasoningItemForTraining.model_validate({"id": "r", "summary": [], **tokens})


@pytest.mark.parametrize("cls", [ResponsesConverter, Hooked])
def test_refusals_in_a_row_are_all_kept(cls: type[ResponsesConverter]) -> None:
    refusals = [{**output_message(), "content": [{"type": "refusal", "refusal": text}]} for text in ("no", " way")]

    sent = orjson.loads(converted(cls, False, {"input": refusals}))

    assert sent["messages"] == [{"role": "assistant", "content": None, "refusal": "no way"}]


def test_a_status_is_no_field_of_an_easy_message() -> None:
    item = {"type": "message", "role": "user", "content": "x", "status": "completed"}

    assert request(input=[item]).model_dump(exclude_unset=True)["input"] == [
        {"type": "message", "role": "user", "content": "x"}
    ]


def test_nulls_of_tools_are_not_echoed() -> None:
    tools = [{**FUNCTION_TOOL, "strict": None, "description": None}, {"type": "web_search", "vendor": None}]
    converter = ResponsesConverter(return_token_id_information=False)
    answer = converter.chat_completion_to_response(request(tools=tools), completion({"content": "x"}))

    function = {key: FUNCTION_TOOL[key] for key in ("name", "parameters", "type")}
    assert answer.model_dump(exclude_unset=True)["tools"] == [function, {"type": "web_search"}]


def test_only_the_refusal_of_a_refusal_part_is_read() -> None:
    part = {"type": "refusal", "refusal": "no", "text": "never"}
    converter = ResponsesConverter(return_token_id_information=False)
    (item,) = converter.postprocess_assistant_message_dict({"role": "assistant", "content": [part]})

    assert item.model_dump(exclude_unset=True)["content"] == [{"type": "refusal", "refusal": "no"}]
