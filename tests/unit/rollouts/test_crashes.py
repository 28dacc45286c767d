"""A process that dies at any of its writes: whoever resumes ends where an undisturbed run ends."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.rollouts import dispatch, journal
from nemo_gym.rollouts.coverage import Tally
from nemo_gym.rollouts.errors import NothingMeasuredError, OutputError
from nemo_gym.rollouts.journal import read_journal
from nemo_gym.rollouts.progress import CollectionProgress
from nemo_gym.rollouts.recorder import Recorder
from tests.unit.rollouts.fakes import FakeReply, Row, collect, collection_config, read_jsonl, right, task

ROWS = 5
HOWS = ("nothing", "half", "all")


class Killed(BaseException):
    """What a SIGKILL looks like from inside: nothing is written afterwards."""


class Disk:
    """Lets so many writes through; of the next, none, half or all is written before the process dies."""

    def __init__(self, writes: int, how: str) -> None:
        self.left, self.how, self.died = writes, how, False
        self._write = os.write

    def __call__(self, descriptor: int, data: Any) -> int:
        if self.died:
            raise Killed
        if self.left:
            self.left -= 1
            return self._write(descriptor, data)
        self.died = True
        share = {"nothing": 0, "half": len(data) // 2, "all": len(data)}[self.how]
        self._write(descriptor, bytes(data)[:share])
        raise Killed


def answers() -> Callable[[Row], Any]:
    """Row 1 fails for good, row 2 at the first try, row 3 always."""
    tried: Counter[int] = Counter()

    def answer(row: Row) -> Any:
        number = row["number"]
        tried[number] += 1
        if number == 1:
            return {"_ng_failure_class": "judge_failed", "_ng_failure_terminal": True}
        if number == 2 and tried[number] == 1:
            return FakeReply(b"busy", status=503)
        return FakeReply(b"no", status=500) if number == 3 else right(row)

    return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_FIRST_DELAYS", (0.0,))
    monkeypatch.setattr(journal, "SYNC_SECONDS", 60.0)


def config(folder: Path, **fields: Any) -> Any:
    rows = [task(f"q{number}", number=number) for number in range(ROWS)]
    return collection_config(folder, rows, agent_name="math_agent", num_samples_in_parallel=2, **fields)


async def finish(folder: Path) -> int:
    """Resume until nothing is left; how often it took."""
    for times in range(1, 10):
        client = await collect(config(folder, resume_from_cache=True), answers())
        if not client.runs:
            return times
    raise AssertionError("never ends")


def books(folder: Path) -> dict[str, Any]:
    """What must not depend on where a run was cut."""
    attempts = [(row["_ng_task_index"], row.get("_ng_attempt_index", 0)) for row in read_jsonl(folder / "out.jsonl")]
    failed = [
        (row["_ng_task_index"], row.get("_ng_attempt_index", 0)) for row in read_jsonl(folder / "out_failures.jsonl")
    ]
    done = [entry for entry in read_journal(folder / "out.jsonl.journal") if entry["kind"] == "done"]
    for entry in done:
        file = folder / ("out.jsonl" if entry["outcome"] == "measured" else "out_failures.jsonl")
        line = file.read_bytes()[entry["offset"] : entry["offset"] + entry["length"]]
        assert line.endswith(b"\n") and blake2b(line[:-1], digest_size=8).hexdigest() == entry["hash"]
    noted = [(e["task"], e["attempt"], e["outcome"], e.get("boundary"), e.get("retries", 0)) for e in done]
    coverage = orjson.loads((folder / "out_coverage.json").read_bytes())
    records = {"records": sorted(attempts), "failures_on_file": sorted(failed), "noted": sorted(noted, key=str)}
    return {**records, **coverage}


@pytest.mark.parametrize("how", HOWS)
async def test_a_run_killed_at_its_nth_write_is_completed_as_if_it_had_not_been(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B53, B54: for every n, until the run completes."""
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    await collect(config(undisturbed), answers())
    await finish(undisturbed)
    expected = books(undisturbed)
    capsys.readouterr()
    assert (expected["asked"], expected["measured"], expected["failed"], expected["unknown"]) == (ROWS, 3, 2, 0)
    writes = 0
    while True:
        folder = tmp_path / f"{how}-{writes}"
        folder.mkdir()
        disk = Disk(writes, how)
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", disk)
            try:
                await collect(config(folder), answers())
            except Killed:
                assert disk.died
        if not disk.died:
            break
        await finish(folder)
        told = capsys.readouterr().out.splitlines()[-1]
        assert told == f"{ROWS} asked: 3 measured, 2 failed (agent 1, verifier 1), 0 unknown"
        assert books(folder) == expected, writes
        writes += 1
    assert writes == 3 * ROWS + 3, "each attempt, record and outcome, a retry, and the run's beginning and end"


@pytest.mark.parametrize("name", ["out.jsonl", "out_failures.jsonl", "out.jsonl.journal"])
async def test_a_full_disk_under_any_of_the_files_loses_nothing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B53: whichever file has no room; what is on file then stays, and the rest is run afterwards."""
    append = journal.AppendFile.append
    lines: Counter[str] = Counter()

    def full(self: journal.AppendFile, line: bytes) -> int:
        lines[self.path.name] += 1
        if self.path.name != name or lines[name] < 2:
            return append(self, line)
        monkeypatch.setattr(os, "write", _no_room)
        try:
            return append(self, line)
        finally:
            monkeypatch.setattr(os, "write", write)

    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(journal.AppendFile, "append", full)
        with pytest.raises(OutputError, match=rf"{name} can't be written \(No space left on device\).*--resume"):
            await collect(config(tmp_path), answers())
    await finish(tmp_path)
    ended = books(tmp_path)
    assert (ended["measured"], ended["failed"], ended["unknown"]) == (3, 2, 0)
    assert ended["records"] == [(0, 0), (2, 0), (4, 0)]


def _no_room(descriptor: int, data: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_record_without_its_entry_is_measured_and_the_entry_is_added(tmp_path: Path) -> None:
    """B54: the process died between the record and what the journal says about it."""
    await collect(config(tmp_path), right)
    path = tmp_path / "out.jsonl.journal"
    entries = [entry for entry in read_journal(path) if entry["kind"] not in ("end", "done") or entry.get("task") != 3]
    path.write_bytes(b"".join(orjson.dumps(entry) + b"\n" for entry in entries))
    client = await collect(config(tmp_path, resume_from_cache=True), right)
    assert client.runs == []
    (added,) = [entry for entry in read_journal(path) if entry.get("repaired")]
    assert (added["task"], added["outcome"], added["reward"]) == (3, "measured", 1.0)
    records = (tmp_path / "out.jsonl").read_bytes()
    assert orjson.loads(records[added["offset"] :].splitlines()[0])["_ng_task_index"] == 3


async def test_an_unwell_disk_ends_the_run_soon_though_a_later_sync_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([OSError(errno.EIO, "Input/output error")])

    def unwell(descriptor: int) -> None:
        if (error := next(failures, None)) is not None:
            raise error

    written = journal.Books(tmp_path / "out", tmp_path / "failures", tmp_path / "journal")
    monkeypatch.setattr(os, "fsync", unwell)
    with pytest.raises(OutputError, match="could not be brought to the disk"):
        async with written:
            with pytest.raises(OutputError):
                await written.synced()
            written.attempt(0, 0, 0)
    assert not (tmp_path / "journal").read_bytes()


async def test_lines_of_the_journal_that_cannot_be_read_are_told_with_their_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B53: never silently skipped."""
    await collect(config(tmp_path), right)
    path = tmp_path / "out.jsonl.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2][:9] + b"\n", *lines[3:]]))
    await collect(config(tmp_path, resume_from_cache=True), right)
    assert f"{path} has lines that can't be read (the first is line 3)" in capsys.readouterr().err


async def test_a_second_result_of_a_rollout_is_never_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B59: two rows of one identity, as a plan written by others may hold."""
    await collect(config(tmp_path), right)
    (tmp_path / "out.jsonl").write_bytes(b"")
    plan = tmp_path / "out_materialized_inputs.jsonl"
    lines = plan.read_bytes().splitlines(keepends=True)
    plan.write_bytes(b"".join([*lines, lines[0]]))
    client = await collect(config(tmp_path, resume_from_cache=True), right)
    assert len(client.runs) == ROWS
    assert len(read_jsonl(tmp_path / "out.jsonl")) == ROWS
    assert f"{ROWS} asked: {ROWS} measured, 0 failed, 0 unknown" in capsys.readouterr().out


async def test_nothing_measured_has_its_coverage_line_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NothingMeasuredError):
        await collect(config(tmp_path), lambda row: {"_ng_failure_class": "provider_unavailable"})
    assert capsys.readouterr().out.splitlines() == ["5 asked: 0 measured, 5 failed (provider 5), 0 unknown"]


async def test_whatever_asks_for_it_a_rollout_is_recorded_once(tmp_path: Path) -> None:
    """B40, B59: what comes twice is noted in the journal and kept nowhere."""
    row = {**task("q"), "_ng_task_index": 0, "_ng_rollout_index": 0}
    wanted = config(tmp_path)
    results = wanted.result_set
    with CollectionProgress(total=1, done=0) as progress:
        async with journal.Books(results.output, results.failures, results.journal) as written:
            recorder = Recorder(wanted, written, progress, None, Tally(1), lambda record: "agent")
            for _ in range(2):
                recorder.take(
                    dispatch.CompletedRollout(row, right(row), 1.0, "math_environment_server", "legacy_agent")
                )
    assert len(read_jsonl(results.output)) == 1
    assert [entry["kind"] for entry in read_journal(results.journal)] == ["done", "duplicate"]


async def test_a_set_half_moved_aside_is_moved_on_and_nothing_of_it_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B55: the process dies between two renames."""
    await collect(config(tmp_path), right)
    before = {path.read_bytes() for path in config(tmp_path).result_set.members if path.exists()}
    rename, renames = Path.rename, iter([True])

    def dies(self: Path, target: Path) -> Path:
        if next(renames, False):
            return rename(self, target)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dies)
        with pytest.raises(Killed):
            await collect(config(tmp_path), right)
    await collect(config(tmp_path), right)
    assert before <= {path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
