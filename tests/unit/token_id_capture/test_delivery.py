"""Captured tokens on the records of finished rollouts."""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.token_id_capture import trajectories_from_source
from nemo_gym.token_id_capture.delivery import (
    MASK_SAMPLE_KEY,
    TERMINAL_CALL_KEY,
    TERMINAL_RESPONSE_ID_KEY,
    TOKEN_CAPTURE_KEY,
    finalize_rollout_token_capture,
    retire_rollout_token_capture,
)
from nemo_gym.token_id_capture.store import TokenCaptureStore
from tests.unit.token_id_capture.calls import call, said

RECORD = {"_ng_task_index": 3, "_ng_rollout_index": 1, "reward": 1.0}


def _record(text: str = "b", **fields: Any) -> dict[str, Any]:
    return {**RECORD, "response": {"id": "x", "output": [said(text)], "metadata": {"k": "v"}}, **fields}


@pytest.fixture
async def store(tmp_path: Path) -> TokenCaptureStore:
    store = TokenCaptureStore(tmp_path)
    a = call("a", [1], [2], rollout_id="3-1", response_id="resp-a")
    await store.put(a)
    await store.put(call("b", [1, 2, 3], [4, 5], parent=a, rollout_id="3-1", response_id="resp-b"))
    return store


async def test_the_output_becomes_that_of_the_main_chain(store: TokenCaptureStore) -> None:
    record = _record()
    delivery = await finalize_rollout_token_capture(record, store)
    assert not delivery.masked
    assert [item["generation_token_ids"] for item in record["response"]["output"]] == [[2], [4, 5]]
    assert record["response"]["metadata"] == {"k": "v"}
    assert MASK_SAMPLE_KEY not in record
    assert record[TOKEN_CAPTURE_KEY] == {
        "n_calls": 2,
        "terminal_attribution": {"method": "content", "call_id": "b", "reason": "attributed", "chain": ["a", "b"]},
        "chains": 1,
        "roots": 1,
        "quarantined_calls": 0,
        "quarantined_fraction": 0.0,
        "delivered_fraction": 1.0,
        "generated_tokens_captured": 3,
        "generated_tokens_delivered": 3,
        "parent_link_failures": 0,
        "unresolved_parent_calls": 0,
        "empty_generation_calls": 0,
    }


async def test_a_rollout_may_say_which_call_it_ended_with(store: TokenCaptureStore) -> None:
    record = _record("a", **{TERMINAL_CALL_KEY: "a"})
    await finalize_rollout_token_capture(record, store)
    assert [item["generation_token_ids"] for item in record["response"]["output"]] == [[2]]
    assert record[TOKEN_CAPTURE_KEY]["terminal_attribution"]["method"] == "explicit"
    assert record[TOKEN_CAPTURE_KEY]["delivered_fraction"] == pytest.approx(1 / 3)


async def test_a_declared_response_that_was_not_captured_masks(store: TokenCaptureStore) -> None:
    record = _record(**{TERMINAL_RESPONSE_ID_KEY: "gone"})
    assert (await finalize_rollout_token_capture(record, store)).masked
    assert record[MASK_SAMPLE_KEY] is True
    assert record["response"]["output"][0]["generation_token_ids"] == [2]


async def test_a_loss_masks(store: TokenCaptureStore) -> None:
    await store.mark_incomplete("3-1")
    record = _record()
    await finalize_rollout_token_capture(record, store)
    assert (record[MASK_SAMPLE_KEY], record[TOKEN_CAPTURE_KEY]["capture_incomplete"]) == (True, True)


async def test_a_rollout_without_calls_is_masked_and_keeps_its_output(tmp_path: Path) -> None:
    record = _record("b")
    await finalize_rollout_token_capture(record, TokenCaptureStore(tmp_path))
    assert record[MASK_SAMPLE_KEY] is True
    assert record["response"]["output"] == [said("b")]
    assert record[TOKEN_CAPTURE_KEY]["n_calls"] == 0


async def test_a_record_that_carries_tokens_is_left_as_it_is(store: TokenCaptureStore) -> None:
    output = [{**said("b"), "prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [0.0]}]
    record = {**RECORD, "response": {"output": output}}
    delivery = await finalize_rollout_token_capture(record, store)
    assert record == {**RECORD, "response": {"output": output}}
    assert (delivery.masked, delivery.built) == (False, None)
    assert len(store.read_entries("3-1")) == 2


async def test_what_goes_wrong_is_on_the_record_and_masks(store: TokenCaptureStore) -> None:
    store.path_for("3-1").write_text("{not json}\n")
    record = _record()
    delivery = await finalize_rollout_token_capture(record, store)
    assert delivery.masked and record[MASK_SAMPLE_KEY] is True
    assert "ValidationError" in record[TOKEN_CAPTURE_KEY]["error"]
    nameless: dict[str, Any] = {"response": None}
    await finalize_rollout_token_capture(nameless, store)
    assert "which rollout" in nameless[TOKEN_CAPTURE_KEY]["error"]
    assert not await retire_rollout_token_capture("3-1", store, delivery)


async def test_an_attempt_and_an_own_id_name_the_rollout(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    await store.put(call("a", [1], [2], rollout_id="3-1-a2"))
    await store.put(call("b", [1], [2], rollout_id="mine"))
    for fields in ({"_ng_attempt_index": 2}, {"_ng_rollout_id": "mine"}):
        record = _record(**fields)
        await finalize_rollout_token_capture(record, store)
        assert record[TOKEN_CAPTURE_KEY]["n_calls"] == 1


async def test_a_rollout_is_retired_as_it_was_built_or_not_at_all(store: TokenCaptureStore) -> None:
    delivery = await finalize_rollout_token_capture(_record(), store)
    await store.mark_incomplete("3-1", "late")
    assert not await retire_rollout_token_capture("3-1", store, delivery)
    again = await finalize_rollout_token_capture(_record(), store)
    assert await retire_rollout_token_capture("3-1", store, again)
    assert not store.path_for("3-1").exists()


async def test_trajectories_are_every_chain(store: TokenCaptureStore) -> None:
    await store.put(call("z", [7], [8], rollout_id="3-1", created_at=9))
    found = await trajectories_from_source("3-1", store, verified_response={"output": [said("b")]})
    assert found is not None
    assert (found["id"], found["mask_sample"]) == ("proj-3-1", False)
    firsts = [chain["output"][0]["generation_token_ids"] for chain in found["trajectories"]]
    assert firsts == [[2], [8]]
    assert await trajectories_from_source("nothing", store) is None
