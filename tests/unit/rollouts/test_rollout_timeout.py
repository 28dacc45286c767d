"""Rollouts that may take only so long."""

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
from nemo_gym.rollouts.materialise import SourceRow
from nemo_gym.serve.deadline import DeadlineExceededError, seconds_left
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from tests.unit.rollouts.fakes import FakeClient, FakeReply, Row, collection_config, read_jsonl, right, served, task
from tests.unit.rollouts.test_retries import Naps

LATE = FakeReply(
    b'"late"', 504, {CAUSE_HEADER: Cause("T___tools", "E", "late", kind="transport_timeout").header().decode()}
)
BUSY = FakeReply(b"busy", status=504)


async def run(tmp_path: Path, answers: list[Any], seconds: float | None) -> tuple[FakeClient, list[Row], list[Any]]:
    """The client, the failures, and what was left at each request of one rollout."""
    config = collection_config(tmp_path, [], agent_name="math_agent", rollout_timeout_s=seconds)
    left: list[Any] = []

    def answer(row: Row) -> Any:
        left.append(seconds_left())
        reply = answers[len(left) - 1]
        if isinstance(reply, BaseException):
            raise reply
        return right(row) if reply == "right" else reply

    client = FakeClient(served(), answer)
    servers = Servers(client, client.global_config_dict, server_utils.raise_for_status)
    retries = Retries(limit=3, sleep=Naps(), jitter=lambda: 1.0)
    collection = Collection(config, servers, lambda: [SourceRow("row 0", b"q", task("q"))], retries=retries)
    with suppress(NothingMeasuredError):
        await collection.run()
    failures = config.result_set.failures
    return client, read_jsonl(failures) if failures.exists() else [], left


@pytest.mark.parametrize("late", [TimeoutError(), DeadlineExceededError(), LATE])
async def test_a_rollout_out_of_time_is_one_typed_failure(tmp_path: Path, late: Any) -> None:
    _, failures, left = await run(tmp_path, [late], seconds=0.005)
    assert [failure["_ng_failure_class"] for failure in failures] == ["transport_timeout"]
    assert len(left) == 1


async def test_retries_share_the_time(tmp_path: Path) -> None:
    dropped = aiohttp.ServerDisconnectedError()
    _, failures, left = await run(tmp_path, [dropped, "right"], seconds=60.0)
    assert failures == [] and 60 >= left[0] > left[1] > 50


async def test_a_retry_that_would_come_too_late_is_not_waited_for(tmp_path: Path) -> None:
    _, failures, left = await run(tmp_path, [BUSY, "right"], seconds=0.9)
    assert [failure["_ng_failure_class"] for failure in failures] == ["agent_request_failed"]
    assert len(left) == 1


async def test_by_default_there_is_no_deadline(tmp_path: Path) -> None:
    _, failures, left = await run(tmp_path, [BUSY, TimeoutError(), "right"], seconds=None)
    assert failures == [] and left == [None, None, None]
