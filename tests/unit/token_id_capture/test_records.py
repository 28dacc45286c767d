"""Records of calls, and what is read from a model's answers."""

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.token_id_capture.records import (
    TokenEntry,
    compute_digest,
    cumulative_tokens,
    extract_token_fields,
    response_to_output_items,
    strip_token_fields,
)
from tests.unit.token_id_capture.calls import RESOLVED, ROOT, UNRESOLVED, call, function_call, said

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.1]}
BASE = {"rollout_id": "r", "model_call_id": "c", **TOKENS}


def test_an_entry_survives_json_with_what_it_does_not_know() -> None:
    entry = TokenEntry(**BASE, policy_epoch=3)
    again = TokenEntry.model_validate_json(entry.model_dump_json())
    assert again == entry
    assert again.model_extra == {"policy_epoch": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"schema_version": 0}, "schema_version"),
        ({"generation_log_probs": []}, "log-probabilities"),
        ({"parent_resolution": RESOLVED}, "parent_call_id"),
        ({"parent_resolution": ROOT, "parent_call_id": "p"}, "root"),
        ({"parent_resolution": UNRESOLVED, "parent_call_id": "p"}, "unresolved"),
        ({"prompt_is_delta": True, "parent_resolution": ROOT}, "prompt_is_delta"),
        ({"token_item_index": 0}, "token_item_index"),
    ],
)
def test_entries_that_contradict_themselves_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TokenEntry.model_validate({**BASE, **change})


def test_a_stamped_continuation_can_be_kept_as_what_it_adds() -> None:
    first = call("a", [1], [2])
    second = call("b", [1, 2, 3], [4], parent=first, delta=True)
    assert (second.prompt_token_ids, second.prompt_is_delta) == ([3], True)
    assert cumulative_tokens(second, cumulative_tokens(first)) == [1, 2, 3, 4]
    assert (second.cum_len, second.digest) == (4, compute_digest([1, 2, 3, 4]))


def test_a_prompt_that_drops_its_parents_tokens_is_kept_whole() -> None:
    second = call("b", [1, 9, 3], [4], parent=call("a", [1], [2]), delta=True)
    assert (second.prompt_token_ids, second.prompt_is_delta) == ([1, 9, 3], False)


def _response(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "resp", "object": "response", "output": items}


def test_tokens_are_found_on_the_item_that_carries_them() -> None:
    fields = extract_token_fields(_response([said("a"), {**function_call("c", "f", "{}"), **TOKENS}]))
    assert fields is not None
    assert (fields.prompt_token_ids, fields.generation_token_ids, fields.item_index) == ([1, 2], [3], 1)


def test_tokens_are_found_on_response_models() -> None:
    response = NeMoGymResponse.model_validate(
        {
            "id": "resp",
            "created_at": 0,
            "model": "m",
            "object": "response",
            "output": [{**said("a"), "id": "msg", "status": "completed", **TOKENS}],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
    fields = extract_token_fields(response)
    assert fields is not None and fields.generation_token_ids == [3]
    (item,) = response_to_output_items(response)
    assert item["content"][0]["text"] == "a"
    assert not set(item) & set(TOKENS)


def test_no_tokens_are_no_error_but_some_are() -> None:
    assert extract_token_fields(_response([said("a")])) is None
    with pytest.raises(ValueError, match="generation_log_probs"):
        extract_token_fields(_response([{**said("a"), "prompt_token_ids": [1], "generation_token_ids": [2]}]))
    with pytest.raises(ValueError, match="2 output items"):
        extract_token_fields(_response([{**said("a"), **TOKENS}, {**said("b"), **TOKENS}]))
    with pytest.raises(ValueError, match="came with"):
        extract_token_fields(_response([{**said("a"), **TOKENS, "generation_log_probs": []}]))


def test_a_chat_completion_says_the_same_as_items() -> None:
    message = {
        "role": "assistant",
        "content": "a",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        **TOKENS,
    }
    completion = {"id": "x", "choices": [{"message": message}, {"message": {"content": "ignored"}}]}
    items = response_to_output_items(completion)
    assert [item["type"] for item in items] == ["message", "function_call"]
    assert items[1]["call_id"] == "c"
    fields = extract_token_fields(completion)
    assert fields is not None and fields.item_index == 1


def test_an_anthropic_message_says_the_same_as_items() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}]
    items = response_to_output_items({"id": "msg", "type": "message", "content": blocks})
    assert items[0]["content"][0]["text"] == "a"
    assert (items[1]["name"], items[1]["arguments"]) == ("f", '{"x":1}')


def test_token_fields_are_stripped() -> None:
    assert strip_token_fields({"type": "message", **TOKENS, "routed_experts": "x"}) == {"type": "message"}
