"""Staged calls: what a worker makes of a call, and what a trainer makes of its calls."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.token_id_capture.adapters.megatron import MegatronCaptureAdapter
from nemo_gym.token_id_capture.adapters.vllm import VLLMCaptureAdapter
from nemo_gym.token_id_capture.staging import select_terminal_call
from nemo_gym.token_id_capture.staging.capture import RolloutTokenCapture
from nemo_gym.token_id_capture.staging.digests import compute_chain_hash
from nemo_gym.token_id_capture.staging.rebuild import ReceiptVerificationError, verify_and_linearize
from nemo_gym.token_id_capture.staging.records import (
    CallRecord,
    CaptureAdmission,
    CommitCoords,
    RolloutReceipt,
    StagedCallBaseSnapshot,
    StagedCallRecord,
    StageResult,
    default_staging_key,
)
from nemo_gym.token_id_capture.staging.routed_experts import decode_routed_experts, encode_routed_experts


class Stage:
    """A place to stage calls, in memory."""

    def __init__(self) -> None:
        self.records: dict[str, StagedCallRecord] = {}
        self.attachments: Mapping[str, Any] | None = None
        self.error: str | None = None

    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        if self.error:
            return StageResult(ok=False, error=self.error)
        self.records[record.staging_key] = record
        self.attachments = attachments
        return StageResult(ok=True, staging_key=record.staging_key)


def _worker(stage: Stage, adapter: Any = None) -> RolloutTokenCapture:
    return RolloutTokenCapture(sink=stage, weight_version_fn=lambda: 7, adapter=adapter)


def _root(call_id: str = "a") -> CaptureAdmission:
    return CaptureAdmission(rollout_id="r", model_call_id=call_id, mode="text")


def _continuation(call_id: str, coords: CommitCoords, prefix: list[int]) -> CaptureAdmission:
    return CaptureAdmission(
        rollout_id="r",
        model_call_id=call_id,
        mode="token_in",
        parent_call_id=coords.model_call_id,
        prev_len=coords.cum_len,
        required_prefix_token_ids=prefix,
        parent_chain_hash=coords.chain_hash,
    )


def _complete(
    worker: RolloutTokenCapture, admission: CaptureAdmission, prompt: list[int], gen: list[int]
) -> CommitCoords:
    return worker.complete_call(
        worker.begin_call(admission),
        prompt_token_ids=prompt,
        generated_token_ids=gen,
        generated_logprobs=[-0.5] * len(gen),
    )


def _row(coords: CommitCoords) -> CallRecord:
    fields = coords.model_dump(exclude={"disposition"})
    return CallRecord(**fields, response_id=f"resp-{coords.model_call_id}")


def _two_calls() -> tuple[RolloutReceipt, list[StagedCallRecord]]:
    stage = Stage()
    worker = _worker(stage)
    first = _complete(worker, _root(), [1, 2], [3])
    second = _complete(worker, _continuation("b", first, [1, 2, 3]), [1, 2, 3, 4], [5, 6])
    receipt = RolloutReceipt(
        rollout_id="r", reward=1.0, terminal_model_call_id="b", manifest=[_row(first), _row(second)]
    )
    return receipt, list(stage.records.values())


def test_a_worker_stages_what_a_call_adds() -> None:
    stage = Stage()
    worker = _worker(stage)
    first = _complete(worker, _root(), [1, 2], [3])
    assert (first.disposition, first.staging_key, first.weight_version) == ("staged", default_staging_key("r", "a"), 7)
    second = _complete(worker, _continuation("b", first, [1, 2, 3]), [1, 2, 3, 4], [5, 6])
    record = stage.records["r/b"]
    assert (record.token_ids_delta, record.token_mask_delta) == ([4, 5, 6], [0.0, 1.0, 1.0])
    assert record.generation_log_probs_delta == [0.0, -0.5, -0.5]
    assert (second.prev_len, second.delta_len, second.cum_len) == (3, 3, 6)
    assert second.chain_hash == compute_chain_hash(compute_chain_hash(None, [1, 2, 3]), [4, 5, 6])


def test_a_prompt_that_drops_the_prefix_is_not_staged() -> None:
    stage = Stage()
    worker = _worker(stage)
    first = _complete(worker, _root(), [1, 2], [3])
    second = _complete(worker, _continuation("b", first, [1, 2, 3]), [1, 2, 9, 4], [5])
    assert (second.disposition, second.staging_key, second.chain_hash) == ("capture_failed", None, None)
    assert list(stage.records) == ["r/a"]


def test_what_can_not_be_stored_is_told_and_not_raised() -> None:
    stage = Stage()
    stage.error = "disk full"
    assert _complete(_worker(stage), _root(), [1], [2]).disposition == "capture_failed"


def test_a_call_is_completed_once() -> None:
    worker = _worker(Stage())
    call = worker.begin_call(_root(), weight_version=9)
    assert worker.fail_call(call, reason="aborted").weight_version == 9
    with pytest.raises(RuntimeError, match="completed already"):
        worker.fail_call(call, reason="again")
    with pytest.raises(RuntimeError, match="completed already"):
        worker.complete_call(call, prompt_token_ids=[1], generated_token_ids=[2], generated_logprobs=[0.0])


def test_streams_and_other_prefixes_are_not_begun() -> None:
    worker = _worker(Stage())
    with pytest.raises(ValueError, match="streamed"):
        worker.begin_call(_root(), stream=True)
    chained = CaptureAdmission(
        rollout_id="r", model_call_id="b", mode="token_in", parent_call_id="a", prev_len=3, staging_chain=["r/a"]
    )
    with pytest.raises(ValueError, match="3 tokens"):
        worker.begin_call(chained)
    assert worker.begin_call(chained, prefix_token_ids=[1, 2, 3]).prefix_token_ids == [1, 2, 3]
    given = chained.model_copy(update={"required_prefix_token_ids": [1, 2, 3]})
    with pytest.raises(ValueError, match="not the one"):
        worker.begin_call(given, prefix_token_ids=[1, 2, 4])


MESSAGE_TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
LOGPROBS = {"content": [{"token": "token_id:3", "logprob": -0.5}]}


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": [{"message": {"role": "assistant", **MESSAGE_TOKENS, "routed_experts": "e"}}]},
        {"prompt_token_ids": [1, 2], "choices": [{"token_ids": [3], "logprobs": LOGPROBS, "routed_experts": "e"}]},
        {"prompt_token_ids": [1, 2], "routed_experts": "e", "choices": [{"logprobs": LOGPROBS}]},
    ],
)
def test_a_vllm_answer_is_read_wherever_it_has_its_tokens(payload: dict[str, Any]) -> None:
    stage = Stage()
    worker = _worker(stage, VLLMCaptureAdapter())
    coords = worker.complete_call_from_response(worker.begin_call(_root()), payload, attachments={"hidden": 1})
    assert coords.disposition == "staged"
    assert (stage.records["r/a"].token_ids_delta, stage.records["r/a"].extras) == ([1, 2, 3], {"routed_experts": "e"})
    assert stage.attachments == {"hidden": 1}


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"choices": [{"message": {}}]},
        {"prompt_token_ids": [1], "choices": [{"logprobs": {"content": [{"token": "four", "logprob": 0}]}}]},
    ],
)
def test_an_answer_that_can_not_be_read_fails_the_call(payload: dict[str, Any]) -> None:
    worker = _worker(Stage(), VLLMCaptureAdapter())
    assert worker.complete_call_from_response(worker.begin_call(_root()), payload).disposition == "capture_failed"
    with pytest.raises(RuntimeError, match="adapter"):
        _worker(Stage()).complete_call_from_response(worker.begin_call(_root()), payload)


def test_adapters_enter_a_prefix_each_in_its_place() -> None:
    request = {"model": "m", "offload_params": {"x": 1}}
    assert VLLMCaptureAdapter().enter_prefix(request, [1])["required_prefix_token_ids"] == [1]
    megatron = MegatronCaptureAdapter().enter_prefix(request, [1])
    assert megatron["offload_params"] == {"x": 1, "required_prefix_token_ids": [1]}
    assert request == {"model": "m", "offload_params": {"x": 1}}


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "text", "parent_call_id": "p"},
        {"mode": "text", "prev_len": 1},
        {"mode": "token_in"},
        {"mode": "token_in", "parent_call_id": "p", "prev_len": 2},
        {"mode": "token_in", "parent_call_id": "p", "prev_len": 2, "required_prefix_token_ids": [1]},
        {"mode": "text", "parent_chain_hash": "xyz"},
        {"mode": "text", "colour": "red"},
        {"mode": "text", "schema_version": 1},
        {"mode": "text", "rollout_id": ""},
    ],
)
def test_admissions_that_contradict_themselves_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CaptureAdmission.model_validate({"rollout_id": "r", "model_call_id": "a", **fields})


def test_staged_records_prove_themselves() -> None:
    record = _two_calls()[1][1]
    assert StagedCallBaseSnapshot.model_validate(record.base_snapshot().model_dump()).digest == record.digest
    changes: list[dict[str, Any]] = [
        {"token_ids_delta": [4, 5, 7]},
        {"delta_len": 2},
        {"cum_len": 7},
        {"token_mask_delta": [0.0, 0.5, 1.0]},
        {"generation_log_probs_delta": [0.0, float("nan"), 0.0]},
        {"weight_version": 8},
        {"extras": {"a": 1}},
        {"mode": "text"},
    ]
    for change in changes:
        with pytest.raises(ValidationError):
            StagedCallRecord.model_validate({**record.model_dump(), **change})


def test_results_coordinates_and_receipts_are_one_thing_or_the_other() -> None:
    bad: list[tuple[Any, dict[str, Any]]] = [
        (StageResult, {"ok": True}),
        (StageResult, {"ok": False}),
        (StageResult, {"ok": False, "error": "e", "staging_key": "k"}),
        (CommitCoords, {"rollout_id": "r", "model_call_id": "a", "mode": "text", "disposition": "staged"}),
        (RolloutReceipt, {"rollout_id": "r", "terminal_selection": "content"}),
        (RolloutReceipt, {"rollout_id": "other", "manifest": [_two_calls()[0].manifest[0].model_dump()]}),
    ]
    for model, fields in bad:
        with pytest.raises(ValidationError):
            model.model_validate(fields)


# --- the trainer's side ---------------------------------------------------------------------------------------------


def test_calls_become_one_row() -> None:
    row = verify_and_linearize(*_two_calls())
    assert row.token_ids == [1, 2, 3, 4, 5, 6]
    assert row.token_mask == [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    assert row.generation_log_probs == [0.0, 0.0, -0.5, 0.0, -0.5, -0.5]
    assert (row.model_call_ids, row.weight_versions, row.reward) == (["a", "b"], [7, 7], 1.0)
    assert row.terminal_model_call_id == "b"


def test_a_row_ends_with_the_terminal_call() -> None:
    receipt, snapshots = _two_calls()
    row = verify_and_linearize(receipt.model_copy(update={"terminal_model_call_id": "a"}), snapshots)
    assert row.token_ids == [1, 2, 3]


def _code(receipt: RolloutReceipt, snapshots: list[Any]) -> str:
    with pytest.raises(ReceiptVerificationError) as caught:
        verify_and_linearize(receipt, snapshots)
    return caught.value.code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema_version": 1}, "unsupported_schema"),
        ({"digest_version": 1}, "unsupported_digest"),
        ({"extras_digest_version": 2}, "unsupported_extras_digest"),
        ({"failure_reason": "agent died"}, "rollout_failed"),
        ({"capture_poisoned": True}, "capture_poisoned"),
        ({"manifest": []}, "empty_manifest"),
        ({"terminal_model_call_id": None}, "missing_terminal"),
        ({"terminal_model_call_id": "gone"}, "missing_terminal"),
    ],
)
def test_receipts_that_can_not_be_used_are_refused(change: dict[str, Any], code: str) -> None:
    receipt, snapshots = _two_calls()
    assert _code(receipt.model_copy(update=change), snapshots) == code


def test_rows_and_snapshots_have_to_pair() -> None:
    receipt, (a, b) = _two_calls()
    first, second = receipt.manifest
    again = receipt.model_copy(update={"manifest": [first, first]})
    assert _code(again, [a, b]) == "duplicate_manifest_row"
    same_key = receipt.model_copy(update={"manifest": [first, second.model_copy(update={"staging_key": "r/a"})]})
    assert _code(same_key, [a, b]) == "duplicate_staging_key"
    assert _code(receipt, [a]) == "row_count_mismatch"
    assert _code(receipt, [a, a]) == "duplicate_snapshot"
    assert _code(receipt, [a, b.model_copy(update={"model_call_id": "c"})]) == "snapshot_identity_mismatch"
    assert _code(receipt, [a, b.model_copy(update={"rollout_id": "s"})]) == "snapshot_identity_mismatch"
    assert _code(receipt, [b, a]) == "snapshot_order_mismatch"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parent_call_id", "c"),
        ("mode", "text"),
        ("prev_len", 2),
        ("delta_len", 2),
        ("cum_len", 2),
        ("weight_version", 2),
        ("digest", "0" * 64),
        ("extras_digest", "0" * 64),
        ("chain_hash", "0" * 64),
        ("cumulative_hash", "0" * 64),
    ],
)
def test_a_snapshot_that_differs_from_its_row_is_named_by_field(field: str, value: Any) -> None:
    receipt, (a, b) = _two_calls()
    assert _code(receipt, [a, b.model_copy(update={field: value})]) == f"wrong_{field}"


def _changed(index: int, **change: Any) -> tuple[RolloutReceipt, list[Any]]:
    """A change in both row and snapshot, with the digest of the changed snapshot."""
    receipt, snapshots = _two_calls()
    snapshot = snapshots[index].model_copy(update=change)
    try:
        digest = snapshot.computed_digest()
    except (TypeError, ValueError):
        digest = snapshot.digest
    snapshots[index] = snapshot.model_copy(update={"digest": digest})
    known = {key: value for key, value in change.items() if key in CallRecord.model_fields}
    receipt.manifest[index] = receipt.manifest[index].model_copy(update={**known, "digest": digest})
    return receipt, snapshots


@pytest.mark.parametrize(
    ("index", "change", "code"),
    [
        (1, {"token_ids_delta": [4]}, "invalid_snapshot"),
        (1, {"token_ids_delta": [4, 5, -1]}, "invalid_snapshot"),
        (1, {"parent_call_id": "gone"}, "missing_parent"),
        (1, {"prev_len": 2, "cum_len": 5}, "parent_length_mismatch"),
        (1, {"token_mask_delta": [1.0, 0.0, 1.0]}, "invalid_mask_order"),
        (1, {"token_mask_delta": [0.0, 0.0, 0.0]}, "empty_generation"),
        (1, {"token_ids_delta": [4, 5, 7]}, "chain_hash_mismatch"),
        (1, {"cumulative_hash": "0" * 64}, "cumulative_hash_mismatch"),
    ],
)
def test_calls_that_do_not_follow_from_each_other_are_refused(index: int, change: dict[str, Any], code: str) -> None:
    assert _code(*_changed(index, **change)) == code


def test_changed_tokens_do_not_come_to_their_digest() -> None:
    receipt, (a, b) = _two_calls()
    assert _code(receipt, [a, b.model_copy(update={"token_ids_delta": [4, 5, 7]})]) == "corrupt_digest"


def test_calls_that_continue_each_other_are_a_cycle() -> None:
    empty: dict[str, Any] = {"token_ids_delta": [], "token_mask_delta": [], "generation_log_probs_delta": []}
    lengths = {"prev_len": 3, "delta_len": 0, "cum_len": 3}
    receipt, snapshots = _two_calls()
    for index, parent in enumerate(("b", "a")):
        change = {"mode": "token_in", "parent_call_id": parent, **lengths}
        snapshot = snapshots[index].model_copy(update={**change, **empty})
        digest = snapshot.computed_digest()
        snapshots[index] = snapshot.model_copy(update={"digest": digest})
        receipt.manifest[index] = receipt.manifest[index].model_copy(update={**change, "digest": digest})
    assert _code(receipt, snapshots) == "lineage_cycle"


def test_an_error_survives_pickling() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(ReceiptVerificationError("missing_terminal", "none")))
    assert (error.code, error.detail) == ("missing_terminal", "none")


def _row_named(call_id: str, parent: str | None) -> CallRecord:
    row = _two_calls()[0].manifest[0]
    return row.model_copy(update={"model_call_id": call_id, "parent_call_id": parent})


@pytest.mark.parametrize(
    ("rows", "selected"),
    [
        ([], (None, "no_records")),
        ([("a", None), ("a", None)], (None, "duplicate_call_id")),
        ([("a", None), ("b", "gone")], (None, "orphaned_row")),
        ([("a", "b"), ("b", "a")], (None, "no_root")),
        ([("a", None), ("b", None)], (None, "ambiguous_terminal")),
        ([("a", None), ("b", "a"), ("c", "a")], (None, "ambiguous_terminal")),
        ([("a", None), ("b", "c"), ("c", "b")], (None, "ambiguous_terminal")),
        ([("b", "a"), ("a", None), ("c", "b")], ("c", "selected")),
    ],
)
def test_the_terminal_call_is_the_only_one_that_none_continues(
    rows: list[tuple[str, str | None]], selected: tuple[str | None, str]
) -> None:
    found = select_terminal_call([_row_named(*row) for row in rows])
    assert (found.model_call_id, found.reason) == selected


def test_routed_experts_travel_as_one_string() -> None:
    table = [[[1, 2], [3, 4]], [[5, 6], [7, 300]]]
    text = encode_routed_experts(table)
    assert text.startswith("nrlre1:int16:2x2x2:")
    assert decode_routed_experts(text) == table
    assert decode_routed_experts(encode_routed_experts([[[1]], [[2]]], "int8")) == [[[1]], [[2]]]
    assert decode_routed_experts(table) == table
    with pytest.raises(ValueError, match="int8"):
        encode_routed_experts(table, "int8")
    for bad in ("nrlre1:int16:1x2x2:AAA=", "nrlre2:int8:1x1x1:AA==", [[[1], [1, 2]]], 5, "nrlre1:int8:2x1x1:AA=="):
        with pytest.raises(ValueError):
            decode_routed_experts(bad)
