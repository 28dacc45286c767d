from __future__ import annotations

from typing import Any

import pytest

from responses_api_models.vllm_model.errors import MissingTokens
from responses_api_models.vllm_model.tests.serving import CHAT, QUESTION, make_client, post
from responses_api_models.vllm_model.tokens import take_chat_tokens
from tests.mock_provider import MockProvider, Reply, ToolCall
from tests.mock_provider.tokens import logprob, tokenize

TRAINING = {"return_token_id_information": True}
GENERATED = tokenize("yes it is")


def last_item(mock: MockProvider, body: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    answer = post(make_client(mock, **TRAINING, **config), "/v1/responses", {"input": [QUESTION], **(body or {})})
    assert all("prompt_token_ids" not in item for item in answer["output"][:-1])
    item: dict[str, Any] = answer["output"][-1]
    return item


def test_tokens_come_from_log_probs_and_tokenize(mock: MockProvider) -> None:
    mock.play(Reply(text="yes it is"))
    item = last_item(mock)
    assert item["generation_token_ids"] == GENERATED
    assert item["generation_log_probs"] == [logprob(token) for token in GENERATED]
    assert item["prompt_token_ids"] == tokenize("<user>  What is up?")
    chat, asked = mock.bodies(CHAT)[-1], mock.bodies("/tokenize")[-1]
    assert (chat["logprobs"], chat["top_logprobs"], chat["return_tokens_as_token_ids"]) == (True, 0, True)
    assert "return_token_ids" not in chat
    assert asked == {"model": "forced", "messages": [QUESTION]}


def test_tokenize_is_asked_about_the_same_prompt(mock: MockProvider) -> None:
    tool: dict[str, Any] = {"type": "function", "name": "look", "parameters": {}, "strict": None}
    last_item(mock, {"tools": [tool], "temperature": 1.0}, chat_template_kwargs={"a": 1})
    chat, asked = mock.bodies(CHAT)[-1], mock.bodies("/tokenize")[-1]
    assert set(asked) == {"model", "messages", "tools", "chat_template_kwargs"}
    assert asked == {key: chat[key] for key in asked}


def test_tokens_asked_for_inline_need_no_second_call(mock: MockProvider) -> None:
    mock.play(Reply(text="yes it is", prompt_token_ids=(7, 8, 9)))
    item = last_item(mock, request_prompt_and_generation_token_ids=True)
    assert (item["prompt_token_ids"], item["generation_token_ids"]) == ([7, 8, 9], GENERATED)
    assert mock.bodies(CHAT)[-1]["return_token_ids"] is True
    assert mock.bodies("/tokenize") == []


def test_tokens_on_the_message_come_first(mock: MockProvider) -> None:
    mock.play(Reply(text="x", message_tokens=True, token_ids=(1, 2), logprobs=(-0.5, -0.25), prompt_token_ids=(3,)))
    item = last_item(mock)
    assert item["prompt_token_ids"] == [3]
    assert (item["generation_token_ids"], item["generation_log_probs"]) == ([1, 2], [-0.5, -0.25])
    assert mock.bodies("/tokenize") == []


def test_tokens_sit_on_the_last_item(mock: MockProvider) -> None:
    mock.play(Reply(text="Let me look.", reasoning="hm", tool_calls=(ToolCall("look"),)))
    item = last_item(mock)
    assert item["type"] == "function_call"
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) > 0


def test_chat_answers_carry_tokens_instead_of_log_probs(mock: MockProvider) -> None:
    client = make_client(mock, **TRAINING, request_prompt_and_generation_token_ids=True)
    answer = post(client, CHAT, {"messages": [QUESTION], "top_logprobs": None})
    choice = answer["choices"][0]
    assert choice["logprobs"] is None and "token_ids" not in choice and "prompt_token_ids" not in answer
    assert choice["message"]["generation_token_ids"] == tokenize("Not much.")


def test_tokens_of_the_history_go_back_to_the_engine(mock: MockProvider) -> None:
    mock.play(Reply(text="yes it is"))
    item = last_item(mock)
    last_item(mock, {"input": [QUESTION, item, QUESTION]})
    message = mock.bodies(CHAT)[-1]["messages"][1]
    assert message["generation_token_ids"] == GENERATED
    assert message["prompt_token_ids"] == item["prompt_token_ids"]


def test_routed_experts_are_carried_along(mock: MockProvider) -> None:
    message = {"role": "assistant", "content": "x", "prompt_token_ids": [1], "generation_token_ids": [2]}
    message |= {"generation_log_probs": [-1.0], "routed_experts": "opaque"}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    mock.play(Reply(raw={**completion, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}))
    assert last_item(mock)["routed_experts"] == "opaque"


def test_no_tokens_unless_wanted(mock: MockProvider) -> None:
    answer = post(make_client(mock), "/v1/responses", {"input": "hi"})
    assert "prompt_token_ids" not in answer["output"][-1]
    assert "logprobs" not in mock.bodies(CHAT)[-1]


def test_log_probs_a_caller_wants_stay_when_tokens_are_not_wanted(mock: MockProvider) -> None:
    answer = post(make_client(mock), CHAT, {"messages": [QUESTION], "logprobs": True})
    assert len(answer["choices"][0]["logprobs"]["content"]) == 2


def test_several_answers_cannot_carry_tokens(mock: MockProvider) -> None:
    reply = make_client(mock, **TRAINING).post(CHAT, json={"messages": [QUESTION], "n": 2})
    assert reply.status_code == 400 and "n > 1" in reply.json()["detail"]
    assert post(make_client(mock), CHAT, {"messages": [QUESTION], "n": 2})


def completion(message: dict[str, Any] | None = None, choice: Any = None, **response: Any) -> dict[str, Any]:
    entries = [{"token": "token_id:5", "logprob": -0.5}, {"token": "token_id:6", "logprob": -1}]
    first = {"message": {"content": "x", **(message or {})}, "logprobs": {"content": entries}, **(choice or {})}
    return {"choices": [first], **response}


def test_ids_are_read_from_the_names() -> None:
    tokens = take_chat_tokens(completion())
    assert (tokens.prompt, tokens.generation, tokens.logprobs) == (None, [5, 6], [-0.5, -1.0])


BUNDLE = {"prompt_token_ids": [1], "generation_token_ids": [5, 6], "generation_log_probs": [-1.0, -2.0]}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (completion(choice={"logprobs": None}), "no logprobs.content"),
        (completion(choice={"logprobs": {"content": None}}), "no logprobs.content"),
        (completion(choice={"logprobs": {"content": [{"token": "yes", "logprob": -1}]}}), "return_tokens_as_token_ids"),
        (completion(choice={"logprobs": {"content": [{"token": "token_id:x", "logprob": -1}]}}), "can't be read"),
        (completion(choice={"logprobs": {"content": [{"token": "token_id:1"}]}}), "can't be read"),
        (completion(choice={"token_ids": [5, 6]}), "without prompt_token_ids"),
        (completion(prompt_token_ids=[1]), "without token_ids"),
        (completion(choice={"token_ids": [5, 7]}, prompt_token_ids=[1]), "disagree"),
        (completion({"prompt_token_ids": [1]}), "but not generation_token_ids, generation_log_probs"),
        (completion(BUNDLE, {"token_ids": [5, 6]}, prompt_token_ids=[2]), "prompt_token_ids of the response"),
        (completion(BUNDLE, {"token_ids": [5]}, prompt_token_ids=[1]), "token_ids of the choice"),
        (completion({**BUNDLE, "generation_log_probs": [-1.0]}), "2 token ids came with 1"),
    ],
)
def test_answers_that_contradict_themselves(broken: dict[str, Any], words: str) -> None:
    with pytest.raises(MissingTokens, match=words):
        take_chat_tokens(broken)


def test_missing_tokens_are_an_error_not_an_empty_list(mock: MockProvider) -> None:
    mock.play(Reply(raw={**completion(choice={"logprobs": None}), "id": "c"}))
    reply = make_client(mock, **TRAINING).post("/v1/responses", json={"input": "hi"})
    assert reply.status_code == 500 and "return_token_id_information" in reply.json()


def test_tokenize_is_told_to_continue_the_final_message(mock: MockProvider) -> None:
    begun = {"role": "assistant", "content": "It is"}
    last_item(mock, {"input": [QUESTION, begun]}, continue_final_assistant_message=True)
    asked = mock.bodies("/tokenize")[-1]
    assert (asked["continue_final_message"], asked["add_generation_prompt"]) == (True, False)
