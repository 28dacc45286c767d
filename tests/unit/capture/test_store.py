from __future__ import annotations

import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.base_responses_api_model import CaptureStore
from nemo_gym.capture.masking import SecretMask


def exchange(number: int, **fields: Any) -> dict[str, Any]:
    return {"model_call_id": str(number), "request": {"n": number}, "response": {"id": "r", "usage": {}}, **fields}


def test_what_is_recorded_is_read_back_in_order(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path / "new")
    assert store.read("0-0") == [] and store.read_available("0-0") == ([], 0)
    for number in range(3):
        store.record("0-0", exchange(number))
    store.record("0-1", exchange(9))
    assert store.root == tmp_path / "new" and store.path_for("0-0").name == "0-0.capture.jsonl"
    assert [entry["model_call_id"] for entry in store.read("0-0")] == ["0", "1", "2"]
    assert stat.S_IMODE(store.path_for("0-0").stat().st_mode) == 0o600


def test_only_plain_rollout_ids_name_files(tmp_path: Path) -> None:
    store = CaptureStore(str(tmp_path))
    for name in ("", "a/b", "a b", "ä", "a\n"):
        with pytest.raises(ValueError, match="rollout id"):
            store.path_for(name)
    assert store.path_for("a-1.r2_b").parent == tmp_path


def test_damaged_lines_are_counted_and_refused_where_all_is_wanted(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.record("x", exchange(0))
    with store.path_for("x").open("ab") as file:
        file.write(b'{"model_call_id": "cut of')
    store.record("x", exchange(1))
    found, damaged = store.read_available("x")
    assert [(index, entry["model_call_id"]) for index, entry in found] == [(0, "0"), (2, "1")] and damaged == 1
    with pytest.raises(ValueError, match="line 2"):
        store.read("x")


def test_incomplete_is_a_marker_beside_the_records(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path / "new")
    assert not store.is_incomplete("x")
    store.mark_incomplete("x")
    assert store.is_incomplete("x") and store.incomplete_path_for("x").name == "x.capture.incomplete"
    store.record("x", exchange(0))
    store.clear("x")
    assert not store.is_incomplete("x") and store.read("x") == []
    store.clear("x")


def test_threads_and_processes_never_mix_their_lines(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)

    def write(start: int) -> None:
        for number in range(start, start + 20):
            store.record("x", exchange(number, pad="p" * 5000))

    child = os.fork()
    if child == 0:
        write(1000)
        os._exit(0)
    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    numbers = [int(entry["model_call_id"]) for entry in store.read("x")]
    assert sorted(numbers) == sorted([n for start in (0, 100, 200, 1000) for n in range(start, start + 20)])


def test_those_who_write_one_file_at_a_time_share_an_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CaptureStore(tmp_path)
    store.record("x", exchange(0))
    is_writing, goes_on, synced = threading.Event(), threading.Event(), []
    fsync = os.fsync

    def slow_fsync(descriptor: int) -> None:
        synced.append(descriptor)
        is_writing.set()
        assert goes_on.wait(10)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    first = threading.Thread(target=store.record, args=("x", exchange(1)))
    first.start()
    assert is_writing.wait(10)
    others = [threading.Thread(target=store.record, args=("x", exchange(number))) for number in range(2, 7)]
    for thread in others:
        thread.start()
    queue = store._appender._queues[store.path_for("x")]
    while len(queue.pending) < len(others):
        threading.Event().wait(0.001)
    goes_on.set()
    for thread in (first, *others):
        thread.join()
    assert len(synced) == 2 and len(store.read("x")) == 7
    assert store._appender._queues == {}


def test_a_write_that_fails_is_told_to_all_who_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CaptureStore(tmp_path)

    def full(*args: Any) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        store.record("x", exchange(0))


def test_a_file_deleted_while_waiting_for_its_lock_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    store = CaptureStore(tmp_path)
    store.record("x", exchange(0))
    flock = fcntl.flock
    is_first = iter([True])

    def deleting_flock(descriptor: int, operation: int) -> None:
        if next(is_first, False):
            store.path_for("x").unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", deleting_flock)
    store.record("x", exchange(1))
    assert [entry["model_call_id"] for entry in store.read("x")] == ["1"]


def test_a_full_file_takes_calls_without_their_payloads(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path, max_rollout_bytes=2000)
    answer = {"id": "r", "usage": {"input_tokens": 3}, "output": ["long" * 300], "choices": [{"finish_reason": "stop"}]}
    for number in range(3):
        store.record("x", exchange(number, response=answer, request_raw="raw", latency_ms=2.0))
    full, short, _ = store.read("x")
    assert full["response"] == answer and "payload_omitted" not in full
    assert short["payload_omitted"] is True and short["request"] is None and short["latency_ms"] == 2.0
    assert short["response"] == {
        "id": "r",
        "usage": {"input_tokens": 3},
        "choices": [{"index": None, "finish_reason": "stop"}],
    }
    assert "request_raw" not in short


def test_secrets_of_the_config_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    config = {"policy_api_key": 'sk-a"b1234567', "other_token": "abcdefgh", "num_token": 12345678, "short_key": "x1"}
    store = CaptureStore(tmp_path, mask=SecretMask(config))
    text = 'env: sk-a"b1234567 abcdefgh x1'
    store.record("x", exchange(0, response={"text": text, "n": 12345678}))
    recorded = store.read("x")[0]["response"]
    assert recorded == {"text": "env: **** abcdefgh x1", "n": 12345678}
    assert SecretMask(None)(orjson.dumps({"a": 1})) == b'{"a":1}'
