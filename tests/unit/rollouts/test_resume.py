"""Going on with a result set."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollouts.errors import IncompleteRunError, LostResultsError, OutputError, PlanError
from nemo_gym.rollouts.journal import read_journal
from tests.unit.rollouts.fakes import (
    FakeClient,
    FakeReply,
    Handler,
    Row,
    collect,
    collection_config,
    read_jsonl,
    right,
    served,
    task,
    write_jsonl,
)


def numbered(count: int) -> list[Row]:
    return [task(f"q{number}", number=number) for number in range(count)]


async def first_run(tmp_path: Path, count: int = 5, **fields: Any) -> None:
    await collect(collection_config(tmp_path, numbered(count), agent_name="math_agent", **fields))


async def resume(tmp_path: Path, run: Handler = right, **fields: Any) -> FakeClient:
    values = {"input_jsonl_fpath": "gone.jsonl", "resume_from_cache": True, **fields}
    return await collect(collection_config(tmp_path, [], **values), run)


def keep(path: Path, lines: int, torn: bytes = b"") -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]) + torn)


def keys(rows: list[Row]) -> list[int]:
    return sorted(row["_ng_task_index"] for row in rows)


async def test_what_is_measured_stays_and_the_rest_is_run_without_the_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await first_run(tmp_path)
    keep(tmp_path / "out.jsonl", 2)
    kept = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "input.jsonl").unlink()
    client = await resume(tmp_path)
    assert keys(client.runs) == [2, 3, 4]
    assert (tmp_path / "out.jsonl").read_bytes().startswith(kept)
    assert keys(read_jsonl(tmp_path / "out.jsonl")) == [0, 1, 2, 3, 4]
    shown = capsys.readouterr()
    assert "Resuming: 5 planned, 2 measured," in shown.out and "3 to run." in shown.out
    assert "100%" in shown.err and "5/5" in shown.err


async def test_a_torn_last_line_is_dropped_said_and_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await first_run(tmp_path)
    keep(tmp_path / "out.jsonl", 3, '{"reward":1.0,"text":"é'.encode()[:-1])
    client = await resume(tmp_path)
    assert keys(client.runs) == [3, 4]
    assert keys(read_jsonl(tmp_path / "out.jsonl")) == [0, 1, 2, 3, 4]
    assert f"Dropped a truncated final line (23 bytes) of {tmp_path / 'out.jsonl'}" in capsys.readouterr().err


async def test_a_whole_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    await first_run(tmp_path)
    path = tmp_path / "out.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    client = await resume(tmp_path)
    assert client.runs == []
    assert keys(read_jsonl(path)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("harm", [b'{"reward":\n', b"[1]\n", b"\xff\xfe\n", None])
async def test_a_damaged_line_in_the_middle_is_named_kept_and_measured_again(
    tmp_path: Path, harm: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """B53: also one that is as long as it was, where the books say its place."""
    await first_run(tmp_path)
    path, aside = tmp_path / "out.jsonl", tmp_path / "out.jsonl.damaged"
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = lines[1].replace(b'":', b'";', 1) if harm is None else harm
    path.write_bytes(lines[0] + damaged + b"".join(lines[2:]))
    client = await resume(tmp_path)
    assert keys(client.runs) == [1]
    assert aside.read_bytes() == damaged
    assert path.read_bytes().startswith(lines[0] + b"".join(lines[2:])) and keys(read_jsonl(path)) == [0, 1, 2, 3, 4]
    shown = capsys.readouterr()
    assert f"Line 2 of {path} can't be read: kept in {aside}; what they recorded counts as not" in shown.err
    assert "Resuming: 5 planned, 4 measured," in shown.out and "1 cut off with no result, 1 to run." in shown.out
    (*_, resumed) = [entry for entry in read_journal(tmp_path / "out.jsonl.journal") if entry["kind"] == "run"]
    assert resumed["rewritten"] is True
    assert (await resume(tmp_path)).runs == [] and aside.read_bytes() == damaged
    await first_run(tmp_path)
    assert (tmp_path / "out.jsonl.damaged.1").read_bytes() == damaged and not aside.exists()


async def test_a_damaged_failure_is_kept_too_and_its_attempt_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await first_run(tmp_path, 2)
    keep(tmp_path / "out.jsonl", 0)
    failures = [json.dumps(failure(number)).encode() + b"\n" for number in (0, 0, 1)]
    (tmp_path / "out_failures.jsonl").write_bytes(failures[0] + b"{torn\n" + failures[2])
    client = await resume(tmp_path)
    assert [(row["_ng_task_index"], row["_ng_attempt_index"]) for row in client.runs] == [(0, 1), (1, 1)]
    assert (tmp_path / "out_failures.jsonl.damaged").read_bytes() == b"{torn\n"
    assert (tmp_path / "out_failures.jsonl").read_bytes() == failures[0] + failures[2]
    assert f"Line 2 of {tmp_path / 'out_failures.jsonl'} can't be read" in capsys.readouterr().err


async def test_what_can_not_be_kept_is_not_taken_out(tmp_path: Path) -> None:
    await first_run(tmp_path)
    path = tmp_path / "out.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{torn\n" + b"".join(lines[2:]))
    before = path.read_bytes()
    (tmp_path / "out.jsonl.damaged").mkdir()
    with pytest.raises(OutputError, match=r"out\.jsonl\.damaged can't be written to keep them"):
        await resume(tmp_path)
    assert path.read_bytes() == before and not list(tmp_path.glob(".*.tmp"))


async def test_failed_rollouts_are_tried_again_with_their_attempt_number_until_there_were_three(
    tmp_path: Path,
) -> None:
    def sometimes(row: Row) -> Any:
        return right(row) if row["number"] != 1 else FakeReply(b"no", status=500)

    await collect(collection_config(tmp_path, numbered(3), agent_name="math_agent"), sometimes)
    attempts = []
    for _ in range(3):
        client = await resume(tmp_path, sometimes)
        attempts.append([(row["_ng_task_index"], row["_ng_attempt_index"]) for row in client.runs])
    assert attempts == [[(1, 1)], [(1, 2)], []]
    assert [row.get("_ng_attempt_index") for row in read_jsonl(tmp_path / "out_failures.jsonl")] == [None, 1, 2]


async def test_the_number_of_attempts_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await first_run(tmp_path, 1)
    keep(tmp_path / "out.jsonl", 0)
    write_jsonl(tmp_path / "out_failures.jsonl", [failure(0), failure(0), failure(0)])
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "4")
    assert keys((await resume(tmp_path)).runs) == [0]
    keep(tmp_path / "out.jsonl", 0)
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "many")
    with pytest.raises(RuntimeError):
        await resume(tmp_path)
    assert "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS=many is no whole number" in capsys.readouterr().err


def failure(task_index: int, **fields: Any) -> Row:
    return {"_ng_failure_class": "x", "_ng_task_index": task_index, "_ng_rollout_index": 0, **fields}


@pytest.mark.parametrize(
    ("fields", "retried", "retried_with_option"),
    [
        ({"_ng_failure_terminal": True}, False, False),
        ({"_ng_failure_class": "timeout_exceeded", "_ng_failure_terminal": True}, False, True),
        ({"_ng_failure_class": "skipped"}, True, False),
        ({}, True, True),
    ],
)
async def test_terminal_failures_are_left_alone(
    tmp_path: Path, fields: Row, retried: bool, retried_with_option: bool
) -> None:
    for option, expected in ((False, retried), (True, retried_with_option)):
        await first_run(tmp_path, 2, overwrite=True)
        keep(tmp_path / "out.jsonl", 1)
        write_jsonl(tmp_path / "out_failures.jsonl", [failure(1, **fields)])
        client = await resume(tmp_path, retry_terminal_timeouts=option)
        assert bool(client.runs) is expected


async def test_slow_rows_can_go_first_and_cached_deliverables_are_passed_on(tmp_path: Path) -> None:
    await first_run(tmp_path, 4)
    keep(tmp_path / "out.jsonl", 0)
    known = [
        failure(1, elapsed_seconds=3.0, reuse_cached_deliverable=True),
        failure(3, response={"metadata": {"elapsed_seconds": "9"}}),
    ]
    write_jsonl(tmp_path / "out_failures.jsonl", known)
    client = await resume(tmp_path, dispatch_longest_first=True)
    assert [row["_ng_task_index"] for row in client.runs] == [3, 1, 0, 2]
    assert [row.get("reuse_cached_deliverable") for row in client.runs] == [None, True, None, None]


async def test_rollouts_that_were_cut_off_are_counted_and_run_once_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B54: a kill leaves a trace of what was in flight."""
    reached = asyncio.Event()

    async def hang_on_two(row: Row) -> Row:
        if row["number"] == 2:
            reached.set()
            await asyncio.Event().wait()
        return right(row)

    config = collection_config(tmp_path, numbered(3), agent_name="math_agent")
    running = asyncio.create_task(collect(config, hang_on_two))
    await reached.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    entries = list(read_journal(tmp_path / "out.jsonl.journal"))
    assert [entry["task"] for entry in entries if entry["kind"] == "attempt"] == [0, 1, 2]
    assert [entry["task"] for entry in entries if entry["kind"] == "done"] == [0, 1]
    assert entries[-1]["state"] == "stopped"
    client = await resume(tmp_path)
    assert keys(client.runs) == [2]
    assert "1 cut off with no result, 1 to run." in capsys.readouterr().out


async def test_a_record_that_was_taken_away_counts_once_when_it_is_measured_again(tmp_path: Path) -> None:
    """The journal knows it twice; what retries did to the score is told of the records on file."""
    tried: Counter[int] = Counter()

    def answer(row: Row) -> Any:
        tried[row["number"]] += 1
        if row["number"] == 1 and tried[1] == 1:
            return FakeReply(b"busy", status=503)
        return right(row) | {"reward": 1.0 if row["number"] == 3 else 0.0}

    config = collection_config(tmp_path, numbered(4), agent_name="math_agent", num_samples_in_parallel=1)
    await collect(config, answer)
    for _ in range(2):
        lines = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
        left = [line for line in lines if json.loads(line)["reward"] != 1.0]
        (tmp_path / "out.jsonl").write_bytes(b"".join([left[0], *left]))  # one of the others stands there twice
        assert keys((await resume(tmp_path, answer)).runs) == [3]
        told = json.loads((tmp_path / "out_coverage.json").read_bytes())
        assert (told["measured"], told["measured_after_retries"]) == (4, 1)
        assert (told["mean_reward_after_retries"], told["mean_reward_at_once"]) == (0.0, 1 / 3)


@pytest.mark.parametrize("missing", ["out.jsonl", "out_materialized_inputs.jsonl"])
async def test_nothing_to_resume_is_said_and_a_fresh_run_deletes_nothing(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await first_run(tmp_path, 3)
    (tmp_path / missing).unlink()
    client = await collect(collection_config(tmp_path, numbered(3), agent_name="math_agent", resume_from_cache=True))
    assert keys(client.runs) == [0, 1, 2]
    assert f"Nothing to resume: {tmp_path / missing} not there. Starting anew." in capsys.readouterr().err
    if missing != "out.jsonl":
        assert len(read_jsonl(tmp_path / "out.jsonl.1")) == 3


async def test_a_set_without_a_journal_is_resumed_by_its_main_file(tmp_path: Path) -> None:
    await first_run(tmp_path, 3)
    keep(tmp_path / "out.jsonl", 1)
    (tmp_path / "out.jsonl.journal").unlink()
    (tmp_path / "out_failures.jsonl").unlink()
    assert keys((await resume(tmp_path)).runs) == [1, 2]


async def test_scores_cover_earlier_runs_and_duplicated_records_stay_as_they_are(tmp_path: Path) -> None:
    await first_run(tmp_path, 3)
    path = tmp_path / "out.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[0] + lines[1])
    client = await resume(tmp_path)
    assert keys(client.runs) == [2]
    assert keys(read_jsonl(path)) == [0, 0, 1, 2]
    assert len(client.aggregated[0][1]) == 4


async def test_results_of_earlier_runs_are_returned_too_when_retained(tmp_path: Path) -> None:
    from tests.unit.rollouts.fakes import Helper

    await first_run(tmp_path, 3)
    keep(tmp_path / "out.jsonl", 2)
    config = collection_config(tmp_path, [], resume_from_cache=True)
    results = await Helper(FakeClient(served(), right)).run_from_config(config)
    assert [result["_ng_task_index"] for result in results] == [0, 1, 2]


async def test_records_with_an_invalid_judge_answer_can_be_run_again(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "answer.txt").write_text("done")
    await first_run(tmp_path, 3)
    path = tmp_path / "out.jsonl"
    records = read_jsonl(path)
    records[1] |= {"invalid_judge_response": True, "deliverables_dir": str(tmp_path / "work")}
    write_jsonl(path, records)
    assert (await resume(tmp_path)).runs == []
    client = await resume(tmp_path, retry_invalid_judge_responses=True)
    (row,) = client.runs
    assert (row["_ng_task_index"], row["_ng_attempt_index"], row["reuse_cached_deliverable"]) == (1, 1, True)
    (moved,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert moved["_ng_failure_class"] == "judge_invalid"
    assert moved["_ng_migrated_invalid_judge_response"] is True
    assert keys(read_jsonl(path)) == [0, 1, 2]


@pytest.mark.parametrize("harm", ["cut", "torn", "no task"])
async def test_a_damaged_plan_is_made_anew_from_the_same_input_or_named(
    tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await first_run(tmp_path, 3, num_repeats=2)
    keep(tmp_path / "out.jsonl", 5)
    plan = tmp_path / "out_materialized_inputs.jsonl"
    whole = plan.read_bytes()
    lines = whole.splitlines(keepends=True)
    lines[2] = lines[2].replace(b"_ng_task_index", b"ng_task_index") if harm == "no task" else b"{torn\n"
    plan.write_bytes(whole[:-5] if harm == "cut" else b"".join(lines))
    damaged = plan.read_bytes()
    with pytest.raises(PlanError, match=r"out_materialized_inputs\.jsonl.* run without --resume") as raised:
        await resume(tmp_path)
    assert "\n" not in str(raised.value) and plan.read_bytes() == damaged
    same: dict[str, Any] = {"input_jsonl_fpath": str(tmp_path / "input.jsonl"), "agent_name": "math_agent"}
    with pytest.raises(PlanError):
        await resume(tmp_path, **same)
    client = await resume(tmp_path, **same, num_repeats=2)
    assert len(client.runs) == 1 and plan.read_bytes() == whole
    assert f"{plan} was damaged, and is made anew from the input: it is as it was." in capsys.readouterr().err


# --- what is said when a run is not complete ---


async def advice(tmp_path: Path, run: Handler, **fields: Any) -> str:
    with pytest.raises(IncompleteRunError) as raised:
        await resume(tmp_path, run, require_complete=True, **fields)
    return str(raised.value)


async def test_what_can_be_done_about_what_is_missing_is_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(row: Row) -> Any:
        if row["number"] == 0:
            return right(row)
        return {"_ng_failure_class": "x", "_ng_failure_terminal": row["number"] == 1}

    await collect(collection_config(tmp_path, numbered(3), agent_name="math_agent"), failing)
    first = await advice(tmp_path, failing)
    assert "EVAL FAILED: 1/3 samples completed." in first and f"listed in {tmp_path / 'out_failures.jsonl'}. " in first
    assert first.endswith("Run again with --resume to try them again; but 1 failed for good.")
    spent = await advice(tmp_path, failing)
    assert spent.endswith(
        "1 of them have had their 3 attempts: NEMO_GYM_MAX_ROLLOUT_ATTEMPTS=6 and --resume give them more."
    )
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "6")
    finally_ = await advice(tmp_path, lambda row: right(row) if row["number"] == 2 else failing(row))
    assert finally_.endswith("mend what their records name, then begin anew without --resume.")


async def test_results_that_are_deleted_meanwhile_are_not_told_as_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B53: the last line is about what is on file."""
    output = tmp_path / "out.jsonl"

    def answer(row: Row) -> Any:
        if row["number"] == 1:
            return {"_ng_failure_class": "judge_failed"}
        if row["number"] == 3:
            output.unlink()
        return right(row)

    config = collection_config(tmp_path, numbered(4), agent_name="math_agent", num_samples_in_parallel=1)
    with pytest.raises(LostResultsError, match=r"out\.jsonl was deleted by somebody else"):
        await collect(config, answer)
    line = "4 asked: 0 measured, 1 failed (verifier 1), 3 unknown"
    assert capsys.readouterr().out.splitlines() == [line]
    assert json.loads((tmp_path / "out_coverage.json").read_text())["measured"] == 0


async def test_what_left_no_result_is_unknown_not_unstarted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B54: sent, and nothing kept of it, by this run or an earlier one."""

    def nothing_kept(row: Row) -> Any:
        return {"_ng_failure_class": "kill_shaped", "_ng_no_persist": True} if row["number"] else right(row)

    await collect(collection_config(tmp_path, numbered(2), agent_name="math_agent"), nothing_kept)
    line = "2 asked: 1 measured, 0 failed, 1 unknown"
    assert capsys.readouterr().out.splitlines()[-1] == line
    await resume(tmp_path, nothing_kept)
    shown = capsys.readouterr().out.splitlines()
    assert "1 cut off with no result, 1 to run." in shown[0] and shown[-1] == line
