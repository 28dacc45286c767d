"""What a model answered, appended to the next request, gives the backend the same messages again."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from tests.unit.schema.examples import completion, request

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
THOUGHT = TEXT.filter(lambda text: "<think>" not in text and "</think>" not in text)
CALL = st.builds(
    lambda call_id, name, arguments: {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    },
    TEXT,
    TEXT,
    TEXT,
)
TOKENS = st.builds(
    lambda prompt, generated: {
        "prompt_token_ids": prompt,
        "generation_token_ids": generated,
        "generation_log_probs": [-0.5] * len(generated),
    },
    st.lists(st.integers(0, 150_000), max_size=4),
    st.lists(st.integers(0, 150_000), max_size=4),
)


@st.composite
def answers(draw: st.DrawFn, *, tokens: bool = False) -> dict[str, Any]:
    """An assistant message that thinks before it speaks, as models do."""
    thoughts = "".join(f"<think>{thought}</think>" for thought in draw(st.lists(THOUGHT, max_size=2)))
    message: dict[str, Any] = {"role": "assistant", "content": (thoughts + draw(THOUGHT)) or None}
    calls = draw(st.lists(CALL, max_size=2))
    refusal = draw(THOUGHT)
    if calls:
        message["tool_calls"] = calls
    if refusal:
        message["refusal"] = refusal
    if tokens:
        message |= draw(TOKENS)
    return message


def over_the_wire(found: NeMoGymResponse) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate(json.loads(json.dumps(found.model_dump(exclude_unset=True))))


def next_request(params: NeMoGymResponseCreateParamsNonStreaming, found: NeMoGymResponse) -> Any:
    """What an agent sends next: everything so far, the answer, and a tool's word for each call."""
    dumped = params.model_dump(exclude_unset=True)
    answer = [item.model_dump(exclude_unset=True) for item in found.output]
    words = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}
        for item in answer
        if item["type"] == "function_call"
    ] or [{"role": "user", "content": "go on"}]
    return NeMoGymResponseCreateParamsNonStreaming.model_validate(
        {**dumped, "input": [*dumped["input"], *answer, *words]}
    )


def chat_messages(converter: ResponsesConverter, params: NeMoGymResponseCreateParamsNonStreaming) -> list[Any]:
    dumped = converter.responses_to_chat_completion_create_params(params).model_dump(exclude_unset=True)
    found: list[Any] = dumped["messages"]
    return found


@given(st.lists(answers(), min_size=1, max_size=3), st.booleans())
def test_a_conversation_only_grows(conversation: list[dict[str, Any]], parser: bool) -> None:
    converter = ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=parser)
    params = request(input=[{"role": "user", "content": "q"}], instructions="be brief")
    sent = chat_messages(converter, params)
    for message in conversation:
        answered = converter.chat_completion_to_response(params, completion(message))
        params = next_request(params, over_the_wire(answered))
        grown = chat_messages(converter, params)
        assert grown[: len(sent)] == sent
        assert grown[len(sent)] == message
        sent = grown


@given(answers(tokens=True))
def test_tokens_come_back_on_the_message_they_belong_to(message: dict[str, Any]) -> None:
    converter = ResponsesConverter(return_token_id_information=True)
    params = request(input=[{"role": "user", "content": "q"}])

    answered = converter.chat_completion_to_response(params, completion(message))

    assert chat_messages(converter, next_request(params, over_the_wire(answered)))[1] == message


@given(TEXT)
def test_the_second_round_is_the_first_whatever_the_content(content: str) -> None:
    """Even where think tags come late or unbalanced, what was sent once is sent again."""
    converter = ResponsesConverter(return_token_id_information=False)
    params = request(input=[{"role": "user", "content": "q"}])
    noisy = {"role": "assistant", "content": f"{content}<think>{content}</think>{content}</think><think>"}

    params = next_request(params, over_the_wire(converter.chat_completion_to_response(params, completion(noisy))))
    first = chat_messages(converter, params)
    params = next_request(params, over_the_wire(converter.chat_completion_to_response(params, completion(noisy))))

    assert chat_messages(converter, params)[: len(first)] == first


@given(st.lists(answers(), min_size=1, max_size=3))
def test_a_chat_history_survives_both_conversions(conversation: list[dict[str, Any]]) -> None:
    converter = ResponsesConverter(return_token_id_information=False)
    history: list[Any] = [{"role": "user", "content": "q"}]
    for message in conversation:
        history += [message, {"role": "user", "content": "go on"}]

    items = converter.chat_completions_messages_to_responses_items(history)

    assert chat_messages(converter, request(input=items)) == history


@given(answers(tokens=True))
def test_a_response_is_the_same_after_any_number_of_hops(message: dict[str, Any]) -> None:
    converter = ResponsesConverter(return_token_id_information=True)
    found = converter.chat_completion_to_response(request(), completion(message))

    once = over_the_wire(found)
    twice = over_the_wire(once)

    assert once == twice
    assert once.model_dump() == found.model_dump() == twice.model_dump()
    assert [type(item) for item in once.output] == [type(item) for item in found.output]
