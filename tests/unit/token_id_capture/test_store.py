"""The file store, and the conformance checks that any store has to pass."""

import asyncio
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.token_id_capture.conformance import ConformanceError, run_conformance
from nemo_gym.token_id_capture.errors import ConflictingEntryError, FrozenRolloutError, InvalidRolloutIdError
from nemo_gym.token_id_capture.lineage import FileLineageStore, InMemoryLineageStore
from nemo_gym.token_id_capture.records import TokenEntry
from nemo_gym.token_id_capture.store import TokenCaptureStore
from tests.unit.token_id_capture.calls import call

EVERY_CHECK = [
    "put_then_freeze_visibility",
    "idempotent_reput",
    "conflicting_reput",
    "mark_incomplete_durability",
    "freeze_idempotency",
    "post_freeze_write_safety",
    "conditional_retirement",
    "lineage_visibility",
    "fresh_client_lineage_visibility",
    "begin_call_custody",
]


async def test_the_file_store_conforms(tmp_path: Path) -> None:
    passed = await run_conformance(
        lambda: TokenCaptureStore(tmp_path),
        lambda: TokenCaptureStore(tmp_path),
        lambda: FileLineageStore(tmp_path),
        rollout_id="check",
    )
    assert passed == EVERY_CHECK


async def test_a_memory_of_lineage_conforms(tmp_path: Path) -> None:
    async def lineage() -> InMemoryLineageStore:
        return InMemoryLineageStore()

    store = TokenCaptureStore(tmp_path)
    assert await run_conformance(lambda: store, lambda: store, lineage, rollout_id="check") == EVERY_CHECK
    assert await run_conformance(lambda: store, lambda: store, rollout_id="again") == [
        name for name in EVERY_CHECK if "lineage" not in name
    ]


async def _anyway(*_: Any, **__: Any) -> bool:
    return True


async def _nothing(*_: Any, **__: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("method", "replacement", "check"),
    [
        ("put", _nothing, "put_then_freeze_visibility"),
        ("mark_incomplete", _nothing, "mark_incomplete_durability"),
        ("drop", _anyway, "post_freeze_write_safety"),
        ("begin_call", _nothing, "begin_call_custody"),
    ],
)
async def test_a_store_that_breaks_a_promise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, replacement: Any, check: str
) -> None:
    store = TokenCaptureStore(tmp_path)
    monkeypatch.setattr(store, method, replacement)
    with pytest.raises(ConformanceError) as caught:
        await run_conformance(lambda: store, lambda: store, rollout_id="check")
    assert caught.value.check_name == check


async def test_files_are_named_by_rollout_and_hold_sorted_json_lines(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    await store.begin_call("r", "a")
    await store.put(call("a", [1], [2]))
    (line,) = store.path_for("r").read_text().splitlines()
    assert list(json.loads(line)) == sorted(json.loads(line))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"r.tokens.jsonl", "r.tokens.intents", "r.tokens.lock"}
    await store.freeze("r")
    state = json.loads(store.state_path_for("r").read_bytes())
    assert set(state) == {
        "frozen",
        "retired",
        "incomplete",
        "snapshot_id",
        "version",
        "entry_digests",
        "indexed_size",
    }
    assert state["indexed_size"] == store.path_for("r").stat().st_size
    assert list(state["entry_digests"]) == ["a"]


async def test_a_torn_line_is_cut_off_by_the_next_write(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    await store.put(call("a", [1], [2]))
    with store.path_for("r").open("ab") as file:
        file.write(b'{"rollout_id": "r", "model_call' + b"_" * 5000)
    assert [entry.model_call_id for entry in store.read_entries("r")] == ["a"]
    await TokenCaptureStore(tmp_path).put(call("b", [1, 2], [3]))
    assert store.path_for("r").read_bytes().endswith(b"}\n")
    assert [entry.model_call_id for entry in store.read_entries("r")] == ["a", "b"]


async def test_another_process_is_seen(tmp_path: Path) -> None:
    """Two stores on one folder are what two workers are: each keeps an index of its own."""
    one, other = TokenCaptureStore(tmp_path), TokenCaptureStore(tmp_path)
    await one.put(call("a", [1], [2]))
    await other.put(call("a", [1], [2]))
    with pytest.raises(ConflictingEntryError):
        await other.put(call("a", [1], [3]))
    assert one.is_incomplete("r")
    assert [entry.model_call_id for entry in one.read_entries("r")] == ["a"]


def _put_many(root: str, first: int) -> None:
    store = TokenCaptureStore(root)
    for number in range(first, first + 20):
        store.append(call(f"c{number}", [number] * 2000, [1]))


def test_concurrent_processes_write_whole_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_put_many, args=(str(tmp_path), first)) for first in (0, 20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    entries = TokenCaptureStore(tmp_path).read_entries("r")
    assert {entry.model_call_id for entry in entries} == {f"c{number}" for number in range(40)}


async def test_concurrent_calls_of_one_server_are_all_kept(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    await asyncio.gather(*(store.put(call(f"c{number}", [number], [1])) for number in range(30)))
    assert len((await store.freeze("r")).entries) == 30


async def test_retiring_leaves_a_tombstone_that_can_be_swept(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    await store.put(call("a", [1], [2]))
    snapshot = await store.freeze("r")
    assert not await store.drop("r", snapshot_id=snapshot.snapshot_id, version=snapshot.version + 1)
    assert await store.drop("r", snapshot_id=snapshot.snapshot_id, version=snapshot.version)
    assert not store.path_for("r").exists()
    with pytest.raises(FrozenRolloutError, match="retired"):
        await store.freeze("r")
    with pytest.raises(FrozenRolloutError, match="retired"):
        await store.begin_call("r", "late")
    assert store.sweep_retired(3600) == 0
    assert store.sweep_retired(0) == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_rollout_that_is_not_retired_is_not_swept(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    await store.put(call("a", [1], [2]))
    await store.freeze("r")
    assert store.sweep_retired(0) == 0
    store.delete("r")
    assert list(tmp_path.iterdir()) == []
    await store.put(call("a", [1], [3]))
    assert [entry.generation_token_ids for entry in store.read_entries("r")] == [[3]]


async def test_a_failed_write_after_freezing_is_a_loss_in_a_new_version(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    first = await store.freeze("r")
    assert (first.entries, first.incomplete, first.version) == ((), False, 1)
    with pytest.raises(FrozenRolloutError, match="frozen"):
        await store.put(call("a", [1], [2]))
    await store.mark_incomplete("r", "a")
    second = await store.freeze("r")
    assert (second.incomplete, second.version, second.snapshot_id) == (True, 2, first.snapshot_id)


@pytest.mark.parametrize("bad", ["", "a/b", "../x", "a b", "é"])
async def test_ids_that_can_not_name_a_file_are_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(InvalidRolloutIdError):
        await TokenCaptureStore(tmp_path).freeze(bad)
    with pytest.raises(InvalidRolloutIdError):
        await FileLineageStore(tmp_path).manifest(bad)


async def test_equal_entries_are_equal_bytes_however_they_were_made(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    entry = call("a", [1], [2])
    await store.put(entry)
    await store.put(TokenEntry.model_validate(dict(reversed(entry.model_dump().items()))))
    assert len(store.read_entries("r")) == 1
    assert not store.is_incomplete("r")
