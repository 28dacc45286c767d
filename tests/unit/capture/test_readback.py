from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_responses_api_model import (
    CaptureStore,
    ModelCallCaptureConfig,
    aggregate_model_call_metrics,
    clear_model_call_captures_for_rollouts,
    make_capture_store,
    merge_model_call_capture_into_record,
    model_call_capture_dirs_from_config,
    read_available_model_call_records,
    read_model_call_records,
)

ROW = {"_ng_task_index": 0, "_ng_rollout_index": 1}
ANSWER: dict[str, Any] = {"id": "r1", "usage": {"input_tokens": 3, "output_tokens": 4}, "output": []}


def record_call(directory: Path, number: int = 0, **fields: Any) -> None:
    exchange = {
        "model_call_id": f"m{number}",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "latency_ms": 2.5,
        "request": {"input": "hi"},
        "response": ANSWER,
    }
    CaptureStore(directory).record("0-1", {**exchange, **fields})


def gaps_of(record: dict[str, Any]) -> list[Any]:
    return [(gap["code"], gap.get("detail")) for gap in record["ng_model_call_capture"].get("gaps", [])]


def test_a_capture_becomes_part_of_its_record(tmp_path: Path) -> None:
    record_call(tmp_path)
    record_call(tmp_path, 1)
    record: dict[str, Any] = {**ROW, "reward": 1.0}
    merged = merge_model_call_capture_into_record(record, [tmp_path])
    assert merged is record
    capture = record["ng_model_call_capture"]
    assert list(capture) == ["rollout_id", "metrics", "calls"] and capture["rollout_id"] == "0-1"
    assert capture["metrics"]["tokens_in"] == 6 and capture["metrics"]["num_calls"] == 2
    assert [call["call_index"] for call in capture["calls"]] == [0, 1]
    assert "request" not in capture["calls"][0] and capture["calls"][0]["response_id"] == "r1"
    with_payloads = merge_model_call_capture_into_record({**ROW}, [tmp_path], include_payloads=True)
    assert with_payloads["ng_model_call_capture"]["calls"][0]["response"] == ANSWER


def test_attempts_have_captures_of_their_own(tmp_path: Path) -> None:
    record_call(tmp_path)
    second = merge_model_call_capture_into_record({**ROW, "_ng_attempt_index": 1}, [tmp_path])
    assert second["ng_model_call_capture"]["rollout_id"] == "0-1-a1"
    assert gaps_of(second) == [("model_call_capture_no_records", None)]
    assert merge_model_call_capture_into_record({"reward": 1}, [tmp_path]) == {"reward": 1}


def test_whatever_is_missing_becomes_a_gap(tmp_path: Path) -> None:
    record_call(tmp_path)
    record_call(tmp_path, 1, call_index="x", status_code="not a number")
    record_call(tmp_path, 2, payload_omitted=True)
    store = CaptureStore(tmp_path)
    with store.path_for("0-1").open("ab") as file:
        file.write(b"[1]\n{\n")
    store.mark_incomplete("0-1")
    record = merge_model_call_capture_into_record({**ROW}, [tmp_path])
    assert gaps_of(record) == [
        ("model_call_capture_records_unreadable", "count=3"),
        ("model_call_capture_payloads_omitted", "count=1"),
        ("model_call_capture_incomplete", None),
    ]
    assert [call["call_index"] for call in record["ng_model_call_capture"]["calls"]] == [0, 2]


def test_folders_that_cant_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "0-1.capture.jsonl").mkdir()
    record = merge_model_call_capture_into_record({**ROW}, [tmp_path])
    assert gaps_of(record) == [
        ("model_call_capture_unreadable", "IsADirectoryError"),
        ("model_call_capture_no_records", None),
    ]


def test_observations_learn_which_calls_are_theirs(tmp_path: Path) -> None:
    record_call(tmp_path, client_session_id="inv")
    observations = {"source": "agent", "records": [{"kind": "agent_invocation", "invocation_id": "inv"}]}
    record = merge_model_call_capture_into_record({**ROW, "ng_agent_observations": observations}, [tmp_path])
    (invocation,) = record["ng_agent_observations"]["records"]
    assert [call["model_call_id"] for call in invocation["model_calls"]] == ["m0"]
    assert gaps_of(record) == []
    broken = merge_model_call_capture_into_record({**ROW, "ng_agent_observations": {"records": 1}}, [tmp_path])
    assert broken["ng_agent_observations"] == {"records": 1}
    assert [code for code, _ in gaps_of(broken)] == ["agent_observation_join_failed"]


def test_calls_are_read_strictly_or_as_far_as_possible(tmp_path: Path) -> None:
    record_call(tmp_path)
    store = CaptureStore(tmp_path)
    assert [call.model_call_id for call in read_model_call_records(store, "0-1")] == ["m0"]
    with store.path_for("0-1").open("ab") as file:
        file.write(b"{\n")
    calls, damaged = read_available_model_call_records(store, "0-1")
    assert len(calls) == 1 and damaged == 1
    assert aggregate_model_call_metrics(store, "0-1")["tokens_out"] == 4
    with pytest.raises(ValueError, match="line 2"):
        read_model_call_records(store, "0-1")


def test_stale_captures_are_deleted_of_exactly_the_rollouts_named(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    for name in ("0-0", "0-1", "0-1-a1"):
        store.record(name, {})
        store.mark_incomplete(name)
    clear_model_call_captures_for_rollouts([ROW, {"no": "indices"}], [tmp_path, tmp_path / "missing"])
    assert sorted({path.name.split(".")[0] for path in tmp_path.iterdir()}) == ["0-0", "0-1-a1"]


def test_folders_and_stores_come_from_the_config(tmp_path: Path) -> None:
    config = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    assert model_call_capture_dirs_from_config(config) == [tmp_path]
    assert model_call_capture_dirs_from_config({**config, "observability_enabled": False}) == []
    assert model_call_capture_dirs_from_config({"observability_enabled": True}) == []
    assert model_call_capture_dirs_from_config(None) == []
    store = make_capture_store(ModelCallCaptureConfig.model_validate(config))
    assert store is not None and store.root == tmp_path
    assert make_capture_store(ModelCallCaptureConfig(model_call_capture_dir=tmp_path)) is None
