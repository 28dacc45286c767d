"""Rollouts whose request failed, tried again in place."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nemo_gym import server_utils
from nemo_gym.rollouts.collect import Collection, Servers
from nemo_gym.rollouts.dispatch import Retries
from nemo_gym.rollouts.errors import NothingMeasuredError
from nemo_gym.rollouts.journal import read_journal
from nemo_gym.rollouts.materialise import SourceRow
from nemo_gym.rollouts.progress import NoticeRate
from tests.unit.rollouts.fakes import FakeClient, FakeReply, Row, collection_config, read_jsonl, right, served, task


class Naps:
    """Sleeps that take no time and are kept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def run(tmp_path: Path, answers: list[Any], naps: Naps | None = None, **retries: Any) -> FakeClient:
    """One rollout whose requests get these answers in turn; an exception is raised."""
    config = collection_config(tmp_path, [], agent_name="math_agent")
    waiting = list(answers)

    def answer(row: Row) -> Any:
        reply = waiting.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return right(row) if reply == "right" else reply

    client = FakeClient(served(), answer)
    collection = Collection(
        config,
        Servers(client, client.global_config_dict, server_utils.raise_for_status),
        lambda: [SourceRow("row 0", b"q", task("q"))],
        retries=Retries(**{"limit": 3, "sleep": naps or Naps(), "jitter": lambda: 1.0, **retries}),
    )
    with suppress(NothingMeasuredError):
        await collection.run()
    return client


DROPPED = aiohttp.ServerDisconnectedError()


@pytest.mark.parametrize(
    "failure",
    [DROPPED, TimeoutError(), ConnectionResetError(), FakeReply(b"busy", status=503), FakeReply(b"not json{")],
)
async def test_a_request_without_a_result_is_tried_again(tmp_path: Path, failure: Any) -> None:
    client = await run(tmp_path, [failure, "right"])
    assert len(client.runs) == 2
    assert [record["reward"] for record in read_jsonl(tmp_path / "out.jsonl")] == [1.0]
    assert read_jsonl(tmp_path / "out_failures.jsonl") == []


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_server_that_answered_is_not_asked_again(tmp_path: Path, status: int) -> None:
    client = await run(tmp_path, [FakeReply({"no": "way"}, status=status)])
    assert len(client.runs) == 1
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert failure["_ng_failure_class"] == "agent_run_error"


async def test_a_result_that_says_it_failed_is_not_tried_again(tmp_path: Path) -> None:
    client = await run(tmp_path, [{"_ng_failure_class": "judge_failed", "reward": 0.0}])
    assert len(client.runs) == 1


async def test_three_retries_with_growing_pauses_then_only_the_last_failure_is_recorded(tmp_path: Path) -> None:
    naps = Naps()
    client = await run(tmp_path, [TimeoutError("1"), TimeoutError("2"), TimeoutError("3"), TimeoutError("4")], naps)
    assert len(client.runs) == 4
    assert naps.seconds == [1.0, 5.0, 25.0]
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert failure["_ng_failure_message"] == "4"
    retries = [entry for entry in read_journal(tmp_path / "out.jsonl.journal") if entry["kind"] == "retry"]
    assert [entry["failure"]["_ng_failure_message"] for entry in retries] == ["1", "2", "3"]


async def test_the_pauses_never_add_up_to_more_than_allowed(tmp_path: Path) -> None:
    naps = Naps()
    await run(tmp_path, [DROPPED] * 4, naps, seconds=120.0, jitter=lambda: 100.0)
    assert sum(naps.seconds) <= 120
    assert naps.seconds == [100.0, 20.0]


async def test_each_retry_has_a_capture_id_of_its_own_and_counts_as_the_same_attempt(tmp_path: Path) -> None:
    client = await run(tmp_path, [DROPPED, DROPPED, "right"])
    assert [row.get("_ng_rollout_id") for row in client.runs] == [None, "0-0.r1", "0-0.r2"]
    assert all("_ng_attempt_index" not in row for row in client.runs)
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert record["_ng_rollout_id"] == "0-0.r2"


async def test_retries_are_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await run(tmp_path, [FakeReply(b"", status=429), "right"])
    shown = capsys.readouterr().err
    assert "Retry 1 of rollout 0-0 in 1.0 s (agent_request_failed: " in shown
    assert "retried=1" in shown


async def test_retries_of_one_kind_are_told_once_in_a_while_with_a_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Long 429s of one endpoint: a line and a count, not a line for each rollout."""
    await run(tmp_path, [FakeReply(b"", status=429)] * 2 + [DROPPED, "right"])
    shown = capsys.readouterr().err
    assert [line.partition(" in ")[0] for line in shown.splitlines() if line.startswith("Retry")] == [
        "Retry 1 of rollout 0-0"
    ]
    assert "retried=3" in shown


def test_what_was_left_out_is_counted() -> None:
    now = [0.0]
    told = NoticeRate(30.0, lambda: now[0])
    assert [told("busy", "a"), told("busy", "b"), told("gone", "c"), told("busy", "d")] == ["a", None, "c", None]
    now[0] = 31.0
    assert told("busy", "e") == "e [and 2 more like it in the last 31 s]"
    now[0] = 62.0
    assert told("busy", "f") == "f"
