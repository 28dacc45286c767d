"""Whatever a client sends, its mistakes are told as its mistakes."""

import contextlib
import copy
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nemo_gym.anthropic_converter import AnthropicConverter
from nemo_gym.chat_streaming import sanitize_streaming_chat_body
from nemo_gym.errors import GymError
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.responses_streaming import sanitize_streaming_responses_body, validate_streaming_responses_params
from tests.unit.schema.examples import TOKENS, output_message

TEXT_PART = {"type": "input_text", "text": "x"}
IMAGE_PART = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
IMAGE_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {}, "strict": None}
ITEMS: list[Any] = [
    {"role": "user", "content": "x"},
    {"role": "system", "content": [TEXT_PART]},
    {"type": "message", "role": "user", "content": [TEXT_PART, IMAGE_PART], "status": "completed"},
    output_message(**TOKENS),
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "e"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"},
    {"type": "function_call_output", "call_id": "c", "output": [TEXT_PART]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "r"},
    {"role": "tool", "content": "x", "tool_call_id": "c"},
    {"type": "additional_tools", "role": "developer", "tools": [TOOL]},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
]
TOOLS: list[Any] = [
    TOOL,
    {"type": "custom", "name": "f", "format": {"type": "grammar"}},
    {"type": "namespace", "tools": [TOOL]},
]
CHAT: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]},
    {"role": "assistant", "content": "<think>t</think>x", "tool_calls": [CALL], "refusal": "no", **TOKENS},
    {"role": "tool", "content": "x", "tool_call_id": "c"},
]
BLOCKS: list[Any] = [
    {"type": "text", "text": "x"},
    IMAGE_BLOCK,
    {"type": "tool_use", "id": "c", "name": "f", "input": {}},
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}, IMAGE_BLOCK]},
    {"type": "thinking", "thinking": "t", "signature": "s"},
]
WRONG: st.SearchStrategy[Any] = (
    st.none() | st.integers(-1, 1) | st.just("x") | st.just([]) | st.just({}) | st.just([{}]) | st.just([None])
)


@st.composite
def damaged(draw: st.DrawFn, examples: list[Any]) -> Any:
    """A valid thing, of which one place at any depth is missing or something else."""
    whole = copy.deepcopy(draw(st.sampled_from(examples)))
    place = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return whole
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or draw(st.booleans()):
            break
        place = inner
    if isinstance(place, dict) and draw(st.booleans()):
        del place[key]
    else:
        place[key] = draw(WRONG)
    return whole


def several(examples: list[Any]) -> st.SearchStrategy[list[Any]]:
    """Valid things and damaged ones, in any order."""
    return st.lists(st.sampled_from(examples) | damaged(examples) | WRONG, max_size=3)


CONVERTER = ResponsesConverter(return_token_id_information=True)
MESSAGES = AnthropicConverter()
FUZZED = settings(max_examples=60, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Thousands of dropped items are not worth a line each."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


CHOICES = st.sampled_from(["auto", "required", {"type": "function", "name": "f"}]) | WRONG


@FUZZED
@given(several(ITEMS), several(TOOLS), CHOICES)
def test_responses_requests(items: list[Any], tools: list[Any], choice: Any) -> None:
    for extra in ({"tools": tools, "tool_choice": choice}, {}):
        with contextlib.suppress(ValidationError, GymError):
            params = NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items, **extra})
            with contextlib.suppress(GymError):
                CONVERTER.responses_to_chat_completion_create_params(params)
            MESSAGES.responses_to_anthropic(params, "m", 1, None, None, {})


@FUZZED
@given(several(ITEMS), several(TOOLS), WRONG)
def test_streaming_responses_requests(items: list[Any], tools: list[Any], instructions: Any) -> None:
    body = {"input": items, "tools": tools, "instructions": instructions}
    with contextlib.suppress(ValidationError, GymError):
        clean, _ = sanitize_streaming_responses_body(body)
        validate_streaming_responses_params(clean)


@FUZZED
@given(several(CHAT), damaged([{"tools": [{"type": "function", "function": {"name": "f"}}], "stream_options": {}}]))
def test_chat_requests(messages: list[Any], extra: dict[str, Any]) -> None:
    with contextlib.suppress(ValidationError, GymError):
        clean, _ = sanitize_streaming_chat_body({**extra, "messages": messages})
        params = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(clean)
        CONVERTER.chat_completion_to_responses_create_params(params)


@FUZZED
@given(several(BLOCKS), damaged([{"messages": [], "system": [BLOCKS[0]], "tools": [{"name": "f"}]}]))
def test_messages_requests(blocks: list[Any], body: dict[str, Any]) -> None:
    for turns in (body.get("messages"), [{"role": "user", "content": blocks}]):
        with contextlib.suppress(GymError):
            MESSAGES.anthropic_request_to_responses({**body, "model": "m", "max_tokens": 1, "messages": turns})


@FUZZED
@given(several(ITEMS), damaged(CHAT[1:2]))
def test_answers(output: list[Any], message: dict[str, Any]) -> None:
    envelope = {"id": "r", "created_at": 1, "model": "m", "object": "response"}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    with contextlib.suppress(ValidationError, GymError):
        response = NeMoGymResponse.model_validate({**envelope, **settings, "output": output})
        assert isinstance(response.output_text, str)
        MESSAGES.responses_to_anthropic_response(response, "m")
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    with contextlib.suppress(ValidationError, GymError):
        completion = NeMoGymChatCompletion.model_validate(
            {"id": "c", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
        )
        CONVERTER.chat_completion_to_response(NeMoGymResponseCreateParamsNonStreaming(input="q"), completion)
