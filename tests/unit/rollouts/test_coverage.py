"""The coverage line, what it counts, and the same as data."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollouts import dispatch
from nemo_gym.rollouts.coverage import Coverage, Retried, Tally, boundary_by
from nemo_gym.rollouts.errors import IncompleteRunError
from nemo_gym.rollouts.keyset import RolloutKeys
from nemo_gym.rollouts.topology import Topology
from tests.unit.rollouts.fakes import FakeReply, Row, collect, collection_config, right, served, task


def numbered(count: int) -> list[Row]:
    return [task(f"q{number}", number=number) for number in range(count)]


def coverage_of(folder: Path) -> Any:
    return json.loads((folder / "out_coverage.json").read_text())


def test_the_line_reads_as_its_issue_has_it() -> None:
    """B92: what a score doesn't cover is said where the score is."""
    failures = {("provider", "provider_unavailable"): 2, ("verifier", "judge_failed"): 1, ("provider", "x"): 1}
    books = Coverage(asked=1000, measured=994, failures=failures)
    assert books.line() == "1000 asked: 994 measured, 4 failed (provider 3, verifier 1), 2 unknown"
    assert books.as_data() == {
        "asked": 1000,
        "measured": 994,
        "failed": 4,
        "unknown": 2,
        "not_started": 0,
        "failures": {"provider": {"provider_unavailable": 2, "x": 1}, "verifier": {"judge_failed": 1}},
    }
    assert Coverage(3, 3).line() == "3 asked: 3 measured, 0 failed, 0 unknown"
    books.not_started = 1
    assert books.line() == "1000 asked: 994 measured, 4 failed (provider 3, verifier 1), 1 unknown, 1 not started"
    assert not Coverage(1, 0, not_started=1).is_complete
    assert Coverage(3, 3).is_complete and not Coverage(3, 2).is_complete and not books.is_complete


def test_a_rollout_counts_once_as_what_it_came_to_last() -> None:
    tally = Tally(asked=5)
    for task_index in range(4):
        tally.start((task_index, 0))
    tally.fail((0, 0), ("agent", "a"))
    tally.fail((0, 0), ("verifier", "v"))
    tally.fail((1, 0), ("agent", "a"))
    assert tally.coverage().failures == {("verifier", "v"): 1, ("agent", "a"): 1}
    assert tally.measure((1, 0)) and not tally.measure((1, 0))
    tally.fail((1, 0), ("agent", "a"))
    for task_index in (0, 1):
        tally.start((task_index, 0))
    line = "5 asked: 1 measured, 1 failed (verifier 1), 2 unknown, 1 not started"
    assert tally.coverage().line() == line, "what is sent again has the outcome it had until it has another"


def test_keys_can_be_taken_out_again() -> None:
    keys = RolloutKeys()
    keys.add((5, 1))
    assert keys.discard((5, 1)) and not keys.discard((5, 1)) and not keys.discard((6, 1))
    assert ((5, 1) in keys, len(keys)) == (False, 0)


def failed(failure_class: str, server: str = "", **cause: Any) -> Row:
    row: Row = {"_ng_failure_class": failure_class}
    return {**row, "_ng_failure_cause": {"server": server, **cause}} if server else row


@pytest.mark.parametrize(
    ("record", "boundary"),
    [
        (failed("judge_failed"), "verifier"),
        (failed("agent_run_error"), "agent"),
        (failed("agent_run_error", "OpenAIModel___policy_model", status=400), "provider"),
        (failed("agent_run_error", "Math___math"), "agent"),
        (failed("agent_request_failed", "Math___math", kind="session_lost"), "session"),
        (failed("judge_failed", "OpenAIModel___policy_model"), "verifier"),
        (failed("somebodys:own"), "environment"),
    ],
)
def test_a_failure_counts_where_it_began(record: Row, boundary: str) -> None:
    block = {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}}
    assert boundary_by(Topology(served(policy_model=block)))(record) == boundary


async def test_a_run_ends_with_the_line_and_leaves_it_as_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B39, B42: one failing rollout is one failed rollout, counted."""
    config = collection_config(tmp_path, numbered(3), agent_name="math_agent", disable_aggregation=True)
    await collect(config, lambda row: {"_ng_failure_class": "judge_failed"} if row["number"] == 1 else right(row))
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "3 asked: 2 measured, 1 failed (verifier 1), 0 unknown"
    assert out.count(" asked: ") == 1
    books = coverage_of(tmp_path)
    assert (books["asked"], books["measured"], books["failed"], books["unknown"]) == (3, 2, 1, 0)
    assert (books["measured_after_retries"], books["resumed_anyway"], books["duplicates"]) == (0, [], 0)


async def test_an_interrupted_run_ends_with_the_line_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B54, B111: what was in flight is unknown, and what was never sent is told apart."""
    reached = asyncio.Event()

    async def hang(row: Row) -> Row:
        if row["number"] == 1:
            return {"_ng_failure_class": "judge_failed"}
        if row["number"] == 2:
            reached.set()
            await asyncio.Event().wait()
        return right(row)

    config = collection_config(tmp_path, numbered(5), agent_name="math_agent", num_samples_in_parallel=1)
    running = asyncio.create_task(collect(config, hang))
    await reached.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert capsys.readouterr().out.splitlines() == [
        "5 asked: 1 measured, 1 failed (verifier 1), 1 unknown, 2 not started"
    ]
    assert (coverage_of(tmp_path)["unknown"], coverage_of(tmp_path)["not_started"]) == (1, 2)
    await collect(collection_config(tmp_path, [], resume_from_cache=True))
    assert capsys.readouterr().out.splitlines()[-1] == "5 asked: 5 measured, 0 failed, 0 unknown"


async def test_completeness_can_be_required(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B92: strict mode."""
    config = collection_config(tmp_path, numbered(2), agent_name="math_agent", require_complete=True)
    with pytest.raises(IncompleteRunError) as raised:
        await collect(config, lambda row: {"_ng_failure_class": "x"} if row["number"] else right(row))
    assert raised.value.exit_code == 1
    assert "2 asked: 1 measured, 1 failed (environment 1), 0 unknown" in capsys.readouterr().out


async def test_what_retries_did_to_the_score_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B60: retries in place and resumed ones alike; earlier failures stay in the journal."""
    monkeypatch.setattr(dispatch, "_FIRST_DELAYS", (0.0,))
    tried: set[int] = set()

    def answer(row: Row) -> Any:
        number = row["number"]
        if number < 2 and number not in tried:
            tried.add(number)
            return FakeReply(b"busy", status=503) if number == 0 else {"_ng_failure_class": "judge_failed"}
        return {**right(row), "reward": float(number >= 2)}

    await collect(collection_config(tmp_path, numbered(4), agent_name="math_agent"), answer)
    assert "Measured only after retries: 1 (mean reward 0, of the others 1)\n" in capsys.readouterr().out
    await collect(collection_config(tmp_path, [], resume_from_cache=True), answer)
    assert "Measured only after retries: 2 (mean reward 0, of the others 1)\n" in capsys.readouterr().out
    assert coverage_of(tmp_path)["measured_after_retries"] == 2
    journal = (tmp_path / "out.jsonl.journal").read_text()
    assert '"kind":"retry"' in journal and "503" in journal


def test_nothing_is_said_about_retries_where_there_were_none() -> None:
    retried = Retried()
    retried.add(1.0, tries=1)
    assert retried.line() is None
    retried.add(None, tries=2)
    assert retried.line() == "Measured only after retries: 1"
    assert (retried + retried).line() == "Measured only after retries: 2"


@pytest.mark.parametrize(
    ("stage", "failure_class", "boundary"),
    [
        ("verify", "verifier_error", "verifier"),
        ("tool", "transport_timeout", "tool"),
        ("model", "transport_timeout", "provider"),
        ("seed", "transport_timeout", "environment"),
        (None, "transport_timeout", "transport"),
        ("somebody_elses", "transport_timeout", "transport"),
    ],
)
def test_what_took_too_long_is_counted_where_that_was(stage: str | None, failure_class: str, boundary: str) -> None:
    cause = {"server": "A___a", "error": "E", "message": "late", "kind": failure_class, "stage": stage}
    record = {"_ng_failure_class": failure_class, "_ng_failure_cause": cause}
    assert boundary_by(Topology(served()))(record) == boundary
