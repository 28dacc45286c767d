"""A chat completion as a response."""

from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym import openai_utils as wire
from nemo_gym import responses_converter
from nemo_gym.responses_converter import (
    ResponsesConverter,
    VLLMConverter,
    VLLMConverterResponsesToChatCompletionsState,
    _usage_detail,
    split_responses_input_output_items,
)
from tests.unit.schema.examples import FUNCTION_TOOL, TOKENS, completion, output_message, request, tool_call

CONVERTER = ResponsesConverter(return_token_id_information=True)


def output(message: Any, converter: ResponsesConverter = CONVERTER) -> list[dict[str, Any]]:
    found = converter.chat_completion_to_response(request(), completion(message))
    return [item.model_dump(exclude_unset=True) for item in found.output]


@pytest.fixture
def numbered_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(1, 100))
    monkeypatch.setattr(responses_converter, "uuid4", lambda: SimpleNamespace(hex=str(next(numbers))))


@pytest.mark.usefixtures("numbered_ids")
def test_items_come_in_order_with_fresh_ids() -> None:
    message = {
        "role": "assistant",
        "content": "<think>a</think>x<think>b\nc</think>y",
        "refusal": "no",
        "tool_calls": [tool_call("c1"), tool_call("c2")],
    }

    found = CONVERTER.chat_completion_to_response(request(), completion(message, finish_reason="tool_calls"))

    assert [item.model_dump(exclude_unset=True) for item in found.output] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b\nc"}],
        },
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "xy", "annotations": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        *(
            {
                "type": "function_call",
                "id": call_id,
                "call_id": call_id,
                "name": "look",
                "arguments": "{}",
                "status": "completed",
            }
            for call_id in ("c1", "c2")
        ),
    ]
    assert found.id == "resp_3"


EMPTY = [{"type": "output_text", "text": "", "annotations": []}]


@pytest.mark.parametrize("message", [None, {}, {"role": "assistant"}, {"role": "assistant", "content": None}])
def test_an_empty_answer_is_one_empty_message(message: Any) -> None:
    (item,) = output(message)

    assert item["content"] == EMPTY


def test_only_reasoning_makes_no_message() -> None:
    assert [item["type"] for item in output({"role": "assistant", "content": "<think>a</think>"})] == ["reasoning"]


def test_only_a_call_makes_no_message() -> None:
    assert [item["type"] for item in output({"role": "assistant", "tool_calls": [tool_call()]})] == ["function_call"]


def test_only_a_refusal_has_no_text_part() -> None:
    (item,) = output({"role": "assistant", "refusal": "no"})

    assert item["content"] == [{"type": "refusal", "refusal": "no"}]


def test_an_unclosed_think_span_stays_content() -> None:
    (item,) = output({"role": "assistant", "content": "<think>a"})

    assert item["content"][0]["text"] == "<think>a"


def test_without_a_reasoning_parser_think_tags_are_content() -> None:
    plain = ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=False)

    (item,) = output({"role": "assistant", "content": "<think>a</think>x"}, plain)

    assert item["content"][0]["text"] == "<think>a</think>x"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "<think>a</think>"}, wire.NeMoGymResponseReasoningItemForTraining),
        ({"content": "x"}, wire.NeMoGymResponseOutputMessageForTraining),
        ({"content": "x", "tool_calls": [tool_call()]}, wire.NeMoGymResponseFunctionToolCallForTraining),
    ],
)
def test_tokens_go_on_the_last_item_only(message: dict[str, Any], expected: type) -> None:
    given = completion({"role": "assistant", **message, **TOKENS, "routed_experts": "x"})

    found = CONVERTER.chat_completion_to_response(request(), given)

    *others, last = found.output
    assert type(last) is expected
    dumped = last.model_dump(exclude_unset=True)
    assert {key: dumped[key] for key in TOKENS} == TOKENS
    assert dumped["routed_experts"] == "x"
    assert all(TOKENS.keys().isdisjoint(item.model_dump()) for item in others)


def test_tokens_after_a_custom_call_are_kept_too() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}

    (item,) = output({"role": "assistant", "tool_calls": [call], **TOKENS})

    assert item["type"] == "custom_tool_call"
    assert {key: item[key] for key in TOKENS} == TOKENS


def test_token_arrays_are_handed_on_not_copied() -> None:
    given = completion({"role": "assistant", "content": "x", **TOKENS})

    found = CONVERTER.chat_completion_to_response(request(), given)

    message: Any = given.choices[0].message
    last: Any = found.output[-1]
    assert last.prompt_token_ids is message.prompt_token_ids


def test_tokens_are_left_out_unless_wanted() -> None:
    plain = ResponsesConverter(return_token_id_information=False)

    (item,) = output({"role": "assistant", "content": "x", **TOKENS}, plain)

    assert TOKENS.keys().isdisjoint(item)


def test_half_a_bundle_in_a_message_dict_is_refused() -> None:
    with pytest.raises(ValueError, match="generation_log_probs"):
        CONVERTER.postprocess_assistant_message_dict({"content": "x", "prompt_token_ids": [1]})


@pytest.mark.parametrize(
    ("finish", "status", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        (None, "completed", None),
        ("abort", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_finish_reason(finish: str | None, status: str, details: str | None) -> None:
    found = CONVERTER.chat_completion_to_response(request(), completion(finish_reason=finish))

    assert found.status == status
    assert (found.incomplete_details and found.incomplete_details.reason) == details


def test_the_envelope_echoes_the_request() -> None:
    params = request(
        model="asked",
        temperature=0.5,
        tools=[FUNCTION_TOOL],
        tool_choice="required",
        metadata={"a": "b"},
        reasoning={"effort": "low"},
        max_output_tokens=9,
        top_p=None,
    )

    dumped = CONVERTER.chat_completion_to_response(params, completion(native_finish_reason="eos")).model_dump(
        exclude_unset=True
    )

    expected = {
        "created_at": 7,
        "model": "asked",
        "object": "response",
        "temperature": 0.5,
        "tools": [FUNCTION_TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": True,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low"},
        "max_output_tokens": 9,
        "native_finish_reason": "eos",
        "usage": None,
    }
    assert {key: dumped[key] for key in expected} == expected
    assert dumped["id"].startswith("resp_")
    assert "input" not in dumped and "top_p" not in dumped


def test_the_backends_id_can_be_kept() -> None:
    found = CONVERTER.chat_completion_to_response(request(), completion(), preserve_envelope_id=True)

    assert found.id == "chat-1"


def test_the_backends_model_stands_in_for_a_missing_one() -> None:
    assert CONVERTER.chat_completion_to_response(request(), completion()).model == "backend"


def test_a_completion_without_choices_is_refused() -> None:
    with pytest.raises(ValueError, match="no choices"):
        CONVERTER.chat_completion_to_response(request(), completion(choices=[]))


COUNTS = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 16}


@pytest.mark.parametrize(
    ("details", "cached", "reasoning"),
    [
        ({}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": 3}}, 3, None),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "cached_input_tokens": 4}, 0, None),
        ({"prompt_tokens_details": None, "cached_input_tokens": 4}, 4, None),
        ({"cache_read_input_tokens": 0}, 0, None),
        ({"completion_tokens_details": {"reasoning_tokens": 2}}, None, 2),
        ({"completion_tokens_details": {}, "reasoning_output_tokens": 1}, None, 1),
    ],
)
def test_usage(details: dict[str, Any], cached: int | None, reasoning: int | None) -> None:
    usage = CONVERTER.chat_completion_to_response(request(), completion(usage={**COUNTS, **details})).usage

    assert usage is not None
    assert usage.model_dump() == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": 16,
    }
    assert _usage_detail({**COUNTS, **details}, "prompt_tokens_details", "cached_tokens", "cached_input_tokens") == (
        None if "cache_read_input_tokens" in details else cached
    )


def test_usage_a_backend_adds_is_kept() -> None:
    usage = CONVERTER.chat_completion_to_response(request(), completion(usage={**COUNTS, "cost": 0.5})).usage

    assert usage is not None and usage.model_dump()["cost"] == 0.5


def test_a_chat_history_as_items() -> None:
    history: list[dict[str, Any]] = [
        {"role": "system", "content": None},
        {
            "role": "user",
            "content": [{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "http://i"}}],
        },
        {"role": "assistant", "content": "<think>a</think>x", "tool_calls": [tool_call()]},
        {"role": "tool", "content": [{"type": "text", "text": "seen"}], "tool_call_id": "c1"},
    ]

    found = [
        item.model_dump(exclude_unset=True) for item in CONVERTER.chat_completions_messages_to_responses_items(history)
    ]

    assert [item["type"] for item in found] == [
        "message",
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert found[0]["content"] == ""
    assert found[1]["content"] == [
        {"type": "input_text", "text": "q"},
        {"type": "input_image", "image_url": "http://i", "detail": "auto"},
    ]
    assert found[5] == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [{"type": "input_text", "text": "seen"}],
        "status": "completed",
    }


def test_a_role_without_a_form_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="function"):
        CONVERTER.chat_completions_messages_to_responses_items([{"role": "function", "content": "x"}])


def test_a_chat_request_as_a_responses_request() -> None:
    function = {key: FUNCTION_TOOL[key] for key in ("name", "description", "parameters")}
    grammar = {"type": "grammar", "grammar": {"definition": "d", "syntax": "lark"}}
    chat = wire.NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(
        {
            "messages": [{"role": "user", "content": "q"}],
            "model": "m",
            "max_completion_tokens": 5,
            "max_tokens": 6,
            "stop": ["x"],
            "seed": 1,
            "n": 2,
            "reasoning_effort": "low",
            "verbosity": "high",
            "temperature": 0.5,
            "tools": [
                {"type": "function", "function": function},
                {"type": "custom", "custom": {"name": "c", "format": grammar}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
        }
    )

    found = CONVERTER.chat_completion_to_responses_create_params(chat).model_dump(exclude_unset=True)

    assert found == {
        "input": [{"type": "message", "role": "user", "content": "q"}],
        "model": "m",
        "max_output_tokens": 5,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "high"},
        "temperature": 0.5,
        "tools": [
            {**FUNCTION_TOOL, "strict": None},
            {"type": "custom", "name": "c", "format": {"type": "grammar", "definition": "d", "syntax": "lark"}},
        ],
        "tool_choice": {"type": "function", "name": "look"},
    }


@pytest.mark.parametrize(
    ("items", "cut"),
    [
        ([], 0),
        ([{"type": "message", "role": "user", "content": "q"}], 1),
        ([{"type": "message", "role": "user", "content": "q"}, output_message()], 1),
        ([{"type": "function_call_output", "call_id": "c", "output": "x"}, {"type": "reasoning"}], 1),
        ([{"type": "message", "role": "assistant", "content": "hi"}], 0),
        ([{"type": "mcp_list_tools"}], 0),
    ],
)
def test_a_trajectory_is_cut_where_the_model_first_speaks(items: list[Any], cut: int) -> None:
    assert split_responses_input_output_items(items) == (items[:cut], items[cut:])


def test_a_trajectory_of_models_is_cut_too() -> None:
    question = wire.NeMoGymEasyInputMessage(role="user", content="q")
    call = wire.NeMoGymResponseFunctionToolCall(call_id="c", name="f", arguments="{}")

    assert split_responses_input_output_items([question, call, question]) == ([question], [call, question])


def test_the_old_names_are_the_same_classes() -> None:
    assert VLLMConverter is ResponsesConverter
    assert VLLMConverterResponsesToChatCompletionsState is responses_converter.ResponsesConverterState
