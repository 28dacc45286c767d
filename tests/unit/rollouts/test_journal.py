"""The books."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollouts import journal
from nemo_gym.rollouts.errors import OutputError
from nemo_gym.rollouts.journal import AppendFile, Books, Completion, History, journal_blocks, read_journal
from tests.unit.rollouts.fakes import FakeReply, Row, collect, collection_config, read_jsonl, right, task


def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "out.jsonl", tmp_path / "failures.jsonl", tmp_path / "journal")


async def test_a_completion_says_where_its_record_is(tmp_path: Path) -> None:
    def answer(row: Row) -> Any:
        return FakeReply(b"no", status=500) if row["number"] == 1 else {**right(row), "reward": row["number"] / 4}

    rows = [task(f"q{number}" * (number + 1), number=number) for number in range(4)]
    await collect(collection_config(tmp_path, rows, agent_name="math_agent"), answer)
    entries = list(read_journal(tmp_path / "out.jsonl.journal"))
    assert [entry["kind"] for entry in entries if entry["kind"] in ("run", "end")] == ["run", "end"]
    assert (entries[0]["planned"], entries[-1]["state"]) == (4, "done")
    done = [entry for entry in entries if entry["kind"] == "done"]
    assert len(done) == 4
    for entry in done:
        file = tmp_path / ("out.jsonl" if entry["outcome"] == "measured" else "out_failures.jsonl")
        with file.open("rb") as records:
            records.seek(entry["offset"])
            record = __import__("json").loads(records.readline())
        assert (record["_ng_task_index"], record["_ng_rollout_index"]) == (entry["task"], entry["repeat"])
        assert record.get("reward") == entry["reward"]
        assert entry["attempt"] == 0
    assert {entry["task"]: entry["failure_class"] for entry in done} == {
        0: None,
        1: "agent_run_error",
        2: None,
        3: None,
    }
    assert all(entry["seconds"] >= 0 for entry in done if entry["outcome"] == "measured")


async def test_an_attempt_is_on_file_before_its_request_is_sent(tmp_path: Path) -> None:
    def answer(row: Row) -> Row:
        entries = list(read_journal(tmp_path / "out.jsonl.journal"))
        assert {"kind": "attempt", "task": 0, "repeat": 0, "attempt": 0}.items() <= entries[-1].items()
        return right(row)

    await collect(collection_config(tmp_path, [task("q")], agent_name="math_agent"), answer)
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 1


async def test_records_are_on_file_as_soon_as_they_are_recorded(tmp_path: Path) -> None:
    async with books(tmp_path) as written:
        written.record(Completion(0, 0, 0, "measured"), b'{"a":1}')
        written.record(Completion(1, 0, 0, "failed", "x"), b'{"b":1}')
        written.record(Completion(2, 0, 0, "drained"), None)
        assert (tmp_path / "out.jsonl").read_bytes() == b'{"a":1}\n'
        assert (tmp_path / "failures.jsonl").read_bytes() == b'{"b":1}\n'
        assert [entry["offset"] for entry in read_journal(tmp_path / "journal")] == [0, 0, None]


async def test_writes_reach_the_disk_within_a_second_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(journal, "SYNC_SECONDS", 0.001)
    assert journal.SYNC_SECONDS <= 1
    async with books(tmp_path) as written:
        written.attempt(0, 0, 0)
        while len(synced) < 3:
            await __import__("asyncio").sleep(0.001)
        before = len(synced)
    assert len(synced) == before + 3


def test_a_line_that_cannot_be_written_whole_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AppendFile(tmp_path / "out.jsonl")
    file.append(b'{"a":1}')
    write, calls = os.write, []

    def full_disk(descriptor: int, data: memoryview) -> int:
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:3])

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OutputError, match=r"out\.jsonl can't be written \(No space left on device\)"):
        file.append(b'{"b":2}')
    monkeypatch.undo()
    assert file.append(b'{"c":3}') == 8
    file.close()
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"a":1}\n{"c":3}\n'


async def test_a_full_disk_ends_the_run_with_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [task(f"q{number}", number=number) for number in range(4)]
    write, room = os.write, [9]

    def small_disk(descriptor: int, data: memoryview) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", small_disk)
    with pytest.raises(
        OutputError, match=r"No space left on device.*make room, then run the same command with --resume"
    ):
        await collect(collection_config(tmp_path, rows, agent_name="math_agent", num_samples_in_parallel=1))
    monkeypatch.setattr(os, "write", write)
    saved = read_jsonl(tmp_path / "out.jsonl")
    assert 0 < len(saved) < 4
    await collect(collection_config(tmp_path, [], resume_from_cache=True))
    assert sorted(record["_ng_task_index"] for record in read_jsonl(tmp_path / "out.jsonl")) == [0, 1, 2, 3]


async def test_what_cannot_reach_the_disk_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_disk(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OutputError, match=r"out\.jsonl could not be brought to the disk"):
        async with books(tmp_path):
            monkeypatch.setattr(os, "fsync", broken_disk)
    with pytest.raises(KeyError):
        async with books(tmp_path):
            raise KeyError("what was wrong first")


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:2]))
    file = AppendFile(tmp_path / "out.jsonl")
    file.append(b'{"long":"line"}')
    file.close()
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"long":"line"}\n'


def test_unfinished_attempts_are_those_after_the_last_outcome(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text(
        '{"kind":"attempt","task":0,"repeat":0}\n'
        '{"kind":"attempt","task":1,"repeat":0}\n'
        '{"kind":"attempt","task":1,"repeat":0}\n'
        '{"kind":"attempt","task":2,"repeat":0}\n'
        '{"kind":"done","task":2,"repeat":0}\n'
        '{"kind":"attempt","task":3,"repeat":0}\n'
        '{"kind":"done","task":3,"repeat":0}\n'
        '{"kind":"attempt","ta'
    )
    assert _history(path).unfinished == {(0, 0): 1, (1, 0): 2}
    assert _history(tmp_path / "none").unfinished == {}


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_history_is_the_same_however_many_entries_it_takes_at_once(size: int) -> None:
    def entry(kind: str, task: int, **fields: Any) -> dict[str, Any]:
        return {"kind": kind, "task": task, "repeat": 0, **fields}

    entries: list[dict[str, Any]] = [
        {"kind": "run", "resumed_anyway": ["a", "b"]},
        entry("attempt", 0),
        entry("retry", 0, retry=2),
        entry("attempt", 1),
        entry("retry", 1, retry=1),
        entry("done", 0, outcome="measured", reward=0.5, attempt=0, retries=2),
        entry("done", 0, outcome="measured", reward=0.25),
        entry("done", 1, outcome="failed"),
        entry("attempt", 1),
        entry("done", 1, outcome="dropped"),
        entry("attempt", 2),
        entry("retry", 2, retry=1),
        entry("duplicate", 2),
        entry("done", 3, outcome="measured", reward=1, attempt=1),
        entry("done", 4, outcome="measured", reward=None, attempt=None),
        {"kind": "done", "task": "0", "repeat": 0, "outcome": "measured"},
        {"kind": "end"},
        {},
    ]
    history = History()
    measured = [one for begin in range(0, len(entries), size) for one in history.add(entries[begin : begin + size])]
    assert [one["task"] for one in measured] == [0, 0, 3, 4]
    assert history.unfinished == {(1, 0): 1, (2, 0): 1}
    assert history.retries == {(2, 0): 1}
    assert history.failures == {(1, 0): 1}
    assert [(task, 0) in history.measured for task in range(5)] == [True, False, False, True, True]
    assert (history.retried.again.rollouts, history.retried.again.reward) == (2, 1.5)
    assert (history.retried.at_once.rollouts, history.retried.at_once.rewarded) == (1, 0)
    assert history.resumed_anyway == ["a", "b"] and history.cut_off == 1


def _history(path: Path) -> History:
    history = History()
    for entries in journal_blocks(path):
        history.add(entries)
    return history


@pytest.mark.parametrize(("harm", "what"), [("unlink", "deleted"), ("replace", "replaced"), ("truncate", "cut short")])
def test_a_file_that_others_touch_is_noticed(tmp_path: Path, harm: str, what: str) -> None:
    """B53: what was written after that would be gone, and nobody would know."""
    path = tmp_path / "out.jsonl"
    file = AppendFile(path)
    file.append(b'{"n": 1}')
    file.sync()
    if harm == "unlink":
        path.unlink()
    elif harm == "replace":
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").replace(path)
    else:
        os.truncate(path, 3)
    with pytest.raises(OutputError, match=f"was {what} by somebody else"):
        file.sync()
    file.close()
