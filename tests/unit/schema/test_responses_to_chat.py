"""A Responses request as a chat request."""

from typing import Any

import pytest

from nemo_gym.errors import GymError
from nemo_gym.openai_utils import NeMoGymEasyInputMessage
from nemo_gym.responses_converter import ResponsesConverter, ResponsesConverterState
from tests.unit.schema.examples import FUNCTION_TOOL, TOKENS, output_message, request, tool_call

CONVERTER = ResponsesConverter(return_token_id_information=False)
TRAINING = ResponsesConverter(return_token_id_information=True)


def chat(converter: ResponsesConverter = CONVERTER, **fields: Any) -> dict[str, Any]:
    return converter.responses_to_chat_completion_create_params(request(**fields)).model_dump(exclude_unset=True)


def messages(*items: Any, converter: ResponsesConverter = CONVERTER) -> list[Any]:
    found: list[Any] = chat(converter, input=list(items))["messages"]
    return found


def function_call(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **fields}


def reasoning(*texts: str, **fields: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": summary, **fields}


def tool_output(output: Any = "seen", call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("background", True),
        ("context_management", [{"type": "compaction"}]),
        ("conversation", "c"),
        ("include", ["reasoning.encrypted_content"]),
        ("max_tool_calls", 1),
        ("previous_response_id", "r"),
        ("prompt", {"id": "p"}),
        ("truncation", "auto"),
    ],
)
def test_what_chat_has_no_field_for_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(NotImplementedError, match=field) as caught:
        chat(**{field: value})

    assert isinstance(caught.value, GymError)


def test_nulls_are_as_good_as_absent() -> None:
    names = ("background", "truncation", "top_logprobs", "temperature", "metadata", "reasoning", "text")
    nulls: dict[str, Any] = dict.fromkeys(names)

    assert chat(**nulls) == chat()


def test_a_string_becomes_one_user_message_with_one_part() -> None:
    assert chat(input="hi")["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_string_content_stays_a_string(role: str) -> None:
    assert messages({"role": role, "content": "hi"}) == [{"role": role, "content": "hi"}]


def test_parts_of_user_content() -> None:
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "http://i", "detail": "high"},
        {"type": "input_video", "video_url": "http://v"},
        {"type": "input_video", "video": {"url": "http://w"}},
    ]

    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "http://i", "detail": "high"}},
        {"type": "video_url", "video_url": {"url": "http://v"}},
        {"type": "video_url", "video_url": {"url": "http://w"}},
    ]


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ({"type": "input_image", "file_id": "f", "detail": "auto"}, NotImplementedError),
        ({"type": "input_image", "image_url": "http://i", "detail": "original"}, NotImplementedError),
        ({"type": "input_image", "image_url": "", "detail": "auto"}, ValueError),
        ({"type": "input_file", "file_id": "f"}, NotImplementedError),
    ],
)
def test_parts_without_a_form_in_chat_are_refused(part: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        messages({"role": "user", "content": [part]})


def test_an_image_given_as_object_and_without_detail() -> None:
    state = ResponsesConverterState(return_token_id_information=False)
    part = {"type": "input_image", "image_url": {"url": "http://i"}}

    CONVERTER._format_message({"role": "user", "content": [part]}, state)

    image = {"type": "image_url", "image_url": {"url": "http://i", "detail": "auto"}}
    assert state.messages == [{"role": "user", "content": [image]}]


def test_consecutive_assistant_items_become_one_message() -> None:
    items = [
        {"role": "user", "content": "q"},
        reasoning("a", "b"),
        output_message("x"),
        {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "no"}]},
        function_call("c1"),
        function_call("c2"),
        tool_output(call_id="c1"),
        tool_output(call_id="c2"),
        output_message("done"),
    ]

    assert messages(*items) == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "<think>a</think><think>b</think>x",
            "refusal": "no",
            "tool_calls": [tool_call("c1"), tool_call("c2")],
        },
        {"role": "tool", "content": "seen", "tool_call_id": "c1"},
        {"role": "tool", "content": "seen", "tool_call_id": "c2"},
        {"role": "assistant", "content": "done"},
    ]


def test_an_assistant_message_of_calls_only_has_null_content() -> None:
    assert messages(function_call())[0] == {"role": "assistant", "content": None, "tool_calls": [tool_call()]}


@pytest.mark.parametrize("content", [None, "wait"])
def test_chat_shaped_messages_keep_their_tool_calls(content: str | None) -> None:
    shaped = {"role": "assistant", "content": content, "tool_calls": [tool_call()]}
    answer = {"role": "tool", "content": "seen", "tool_call_id": "c1"}

    assert messages(shaped, answer) == [shaped, answer]


def test_reasoning_of_a_chat_shaped_message_is_put_in_think_tags() -> None:
    shaped = {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [tool_call()]}

    assert messages(shaped)[0]["content"] == "<think>r</think>"


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"role": "tool", "content": "x"}, r"messages\.0\.tool\.tool_call_id"),
        ({"role": "user", "content": None}, "content"),
        ({"role": "user", "content": 5}, "malformed"),
        ({"role": "assistant", "content": 5}, "malformed"),
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, "messages"),
        ({"role": "wizard", "content": "x"}, "messages"),
    ],
)
def test_a_malformed_chat_shaped_message_is_the_clients_mistake(item: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=place) as caught:
        messages(item)

    assert isinstance(caught.value, GymError)


@pytest.mark.parametrize(
    "item",
    [
        {**function_call(), "namespace": "n"},
        {"role": "user", "content": "x", "phase": "commentary"},
        tool_output([{"type": "input_image", "image_url": "http://i", "detail": "auto"}]),
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "mcp_list_tools"},
        {"odd": "thing"},
    ],
)
def test_items_without_a_form_in_chat_are_refused(item: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError):
        messages(item)


def test_tool_output_in_parts() -> None:
    assert messages(tool_output([{"type": "input_text", "text": "a"}]))[0] == {
        "role": "tool",
        "content": [{"type": "text", "text": "a"}],
        "tool_call_id": "c1",
    }


def test_custom_tools_are_called_and_answered() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": "ls"}
    answer = {"type": "custom_tool_call_output", "call_id": "c", "output": "a.txt"}

    assert messages(call, answer) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
        },
        {"role": "tool", "content": "a.txt", "tool_call_id": "c"},
    ]


def test_tokens_of_the_last_item_go_onto_the_merged_message_if_wanted() -> None:
    newer = {**TOKENS, "prompt_token_ids": [9], "routed_experts": "x"}
    items = [reasoning("a", **TOKENS), output_message("x"), function_call(**newer), tool_output(), output_message("y")]

    with_tokens = messages(*items, converter=TRAINING)
    without = messages(*items)

    assert {key: with_tokens[0][key] for key in newer} == newer
    assert newer.keys().isdisjoint(with_tokens[2])
    assert all(newer.keys().isdisjoint(message) for message in without)


def test_instructions_and_what_opens_the_input_become_one_system_message() -> None:
    parts = [{"type": "input_text", "text": "c"}]
    items = [
        {"role": "system", "content": "b"},
        {"role": "developer", "content": parts},
        {"role": "user", "content": "q"},
        {"role": "system", "content": "late"},
    ]

    assert chat(instructions="a", input=items)["messages"] == [
        {"role": "system", "content": "a\n\nb\n\nc"},
        {"role": "user", "content": "q"},
        {"role": "system", "content": "late"},
    ]


def test_without_instructions_opening_messages_stay() -> None:
    items = [{"role": "developer", "content": "b"}, {"role": "user", "content": "q"}]

    assert chat(input=items)["messages"] == items


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": None}}, {}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"a": None}, "strict": True}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"a": None}, "strict": True},
                }
            },
        ),
        ({"temperature": 0.5, "top_p": 0.9, "user": "u"}, {"temperature": 0.5, "top_p": 0.9, "user": "u"}),
        ({"metadata": {"a": "b"}, "store": False}, {"metadata": {"a": "b"}, "store": False}),
        ({"service_tier": "flex", "top_logprobs": 2}, {"service_tier": "flex", "top_logprobs": 2}),
        ({"safety_identifier": "s", "prompt_cache_key": "k"}, {"safety_identifier": "s", "prompt_cache_key": "k"}),
        ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
        ({"tool_choice": "none"}, {}),
    ],
)
def test_fields(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = chat(**fields)

    assert {key: value for key, value in found.items() if key != "messages"} == expected


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look"}])
@pytest.mark.parametrize("tools", [{}, {"tools": []}])
def test_a_forced_choice_without_tools_is_refused(choice: Any, tools: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tool_choice"):
        chat(tool_choice=choice, **tools)


@pytest.mark.parametrize("fields", [{"summary": "auto"}, {"effort": "low", "generate_summary": "concise"}])
def test_other_reasoning_settings_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="summary"):
        chat(reasoning=fields)


def test_function_tools_lose_their_null_keys_only() -> None:
    tool = {"type": "function", "name": "f", "parameters": None, "strict": None, "description": None}

    assert chat(tools=[FUNCTION_TOOL, tool])["tools"] == [
        {"type": "function", "function": {key: FUNCTION_TOOL[key] for key in FUNCTION_TOOL if key != "type"}},
        {"type": "function", "function": {"name": "f"}},
    ]


def test_custom_tools_nest_their_grammar() -> None:
    grammar = {"type": "grammar", "definition": "d", "syntax": "lark"}

    assert chat(tools=[{"type": "custom", "name": "c", "description": "d", "format": grammar}])["tools"] == [
        {
            "type": "custom",
            "custom": {
                "name": "c",
                "description": "d",
                "format": {"type": "grammar", "grammar": {"definition": "d", "syntax": "lark"}},
            },
        }
    ]


@pytest.mark.parametrize("tool", [{"type": "web_search"}, {**FUNCTION_TOOL, "defer_loading": True}])
def test_tools_without_a_form_in_chat_are_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError):
        chat(tools=[tool])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
        ({"type": "custom", "name": "c"}, {"type": "custom", "custom": {"name": "c"}}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}]},
            },
        ),
    ],
)
def test_tool_choice_both_ways(choice: Any, expected: Any) -> None:
    assert chat(tools=[FUNCTION_TOOL], tool_choice=choice)["tool_choice"] == expected
    assert CONVERTER._chat_to_responses_tool_choice(expected) == choice


@pytest.mark.parametrize("choice", [{"type": "file_search"}, {"type": "mcp", "server_label": "s"}])
def test_tool_choices_without_a_form_in_chat_are_refused(choice: Any) -> None:
    with pytest.raises(NotImplementedError):
        chat(tools=[FUNCTION_TOOL], tool_choice=choice)


def test_parallel_tool_calls_is_sent_with_tools_if_it_was_given() -> None:
    assert chat(tools=[FUNCTION_TOOL], parallel_tool_calls=False)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in chat(tools=[FUNCTION_TOOL])


def test_a_subclass_can_format_messages_its_own_way() -> None:
    class Loud(ResponsesConverter):
        def _format_message(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
            super()._format_message({**m, "content": m["content"].upper()}, state)

    loud = Loud(return_token_id_information=False)

    assert messages({"role": "user", "content": "hi"}, converter=loud) == [{"role": "user", "content": "HI"}]


def test_models_are_accepted_as_input() -> None:
    assert messages(NeMoGymEasyInputMessage(role="user", content="hi")) == [{"role": "user", "content": "hi"}]
