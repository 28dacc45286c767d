"""A collection under pressure, with failures behind its agents, and what can be seen of it meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym import server_utils
from nemo_gym.launch.restarts import DEFAULT_RESTARTS
from nemo_gym.rollouts import in_flight
from nemo_gym.rollouts.admission import Admission
from nemo_gym.rollouts.budget import Budget, DispatchLatencyTracker
from nemo_gym.rollouts.dispatch import Dispatcher, Retries
from nemo_gym.rollouts.examples import PrintedFailures
from nemo_gym.rollouts.failures import describe, rule_for
from nemo_gym.schema.pressure import PRESSURE_HEADER
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from tests.unit.rollouts.fakes import (
    FakeClient,
    FakeReply,
    Row,
    collect,
    collection_config,
    read_jsonl,
    right,
    served,
    task,
)
from tests.unit.rollouts.test_retries import Naps, run


def behind(
    kind: str | None = None, status: int | None = None, answered: int = 500, stage: str | None = None, **headers: str
) -> FakeReply:
    """A reply of an agent that failed because of another server."""
    cause = Cause("Model___policy", "Error", "it broke", status, kind, stage).header().decode()
    return FakeReply(b'"it broke"', answered, {CAUSE_HEADER: cause, **headers})


def dispatcher(client: FakeClient, admission: Admission, budget: float | None = None) -> Dispatcher:
    tracker = DispatchLatencyTracker()
    return Dispatcher(
        client=client,
        raise_for_status=server_utils.raise_for_status,
        server_of=lambda row: ("math_agent", None),
        admission=admission,
        listener=PrintedFailures(),
        budget=Budget(budget, None, tracker),
        tracker=tracker,
        failures_as_rows=True,
        retries=Retries(limit=1, sleep=Naps(), jitter=lambda: 1.0),
    )


def numbered(count: int) -> list[Row]:
    return [task(f"q{n}", _ng_task_index=n, _ng_rollout_index=0) for n in range(count)]


def test_a_rollout_that_ends_its_server_each_time_is_given_up_before_the_server_is() -> None:
    """One row with a verifier that crashes must not end a run, nor each of its resumptions."""
    assert (rule_for("transport_peer_drop").most or 0) < DEFAULT_RESTARTS


@pytest.mark.parametrize(
    ("failure", "kind", "requests"),
    [
        (behind("transport_unreachable"), "transport_unreachable", 4),
        (behind("transport_peer_drop"), "transport_peer_drop", 3),
        (behind("transport_local_resource"), "transport_local_resource", 4),
        (behind("transport_timeout", answered=504), "transport_timeout", 2),
        (behind("session_lost"), "session_lost", 4),
        (behind("session_expired"), "session_expired", 1),
        (behind("verifier_error"), "verifier_error", 1),
        (behind("verifier_error", answered=504, stage="verify"), "verifier_error", 2),
        (behind("verifier_error", stage="verify"), "verifier_error", 1),
        (behind(status=429), "provider_unavailable", 4),
        (behind(status=503), "provider_unavailable", 4),
        (behind(status=400), "agent_run_error", 1),
        (behind(kind="somebody:elses"), "agent_run_error", 1),
    ],
)
async def test_a_failure_is_of_the_kind_it_began_with(
    tmp_path: Path, failure: FakeReply, kind: str, requests: int
) -> None:
    """B30, B39: a server that went away behind the agent is a fault of the infrastructure, and is tried again."""
    client = await run(tmp_path, [failure] * 4)
    assert len(client.runs) == requests
    (record,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert record["_ng_failure_class"] == kind
    ids = [row.get("_ng_rollout_id") for row in client.runs]
    assert len(set(ids)) == len(ids), "what an attempt did is told apart from the others'"


@pytest.mark.parametrize(
    ("answer", "limit"),
    [
        (FakeReply({"reward": 1.0}), 8),
        (FakeReply({"reward": 1.0}, headers={PRESSURE_HEADER: "0.000"}), 4),
        (behind(status=429), 4),
        (behind(status=400), 8),
        (FakeReply(b"busy", 503), 4),
        (FakeReply(b"busy", 429, {"Retry-After": "0.01"}), 4),
    ],
)
async def test_pressure_is_heard_in_successes_and_failures(answer: FakeReply, limit: int) -> None:
    """Wherever in the chain of servers somebody answered 429 or 503."""
    gate = asyncio.Event()

    async def reply(row: Row) -> FakeReply:
        await gate.wait()
        return answer

    admission = Admission(8)
    work = dispatcher(FakeClient(served(), reply), admission)
    tasks = [asyncio.create_task(work.run(row)) for row in numbered(8)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*tasks)
    assert admission.limit == limit


async def test_a_spent_budget_ends_a_run_whatever_the_provider_asked_for() -> None:
    """Nobody waits out a Retry-After of minutes to be told that there is no time."""
    admission = Admission(1)
    work = dispatcher(FakeClient(served(), lambda row: FakeReply(b"", 429, {"Retry-After": "100"})), admission, 0.05)
    done = await asyncio.wait_for(asyncio.gather(*(work.run(row) for row in numbered(3))), 10)
    assert [rollout.result["_ng_failure_class"] for rollout in done][1:] == ["cancelled", "cancelled"]
    assert admission.in_flight == 0


async def test_the_number_in_flight_is_what_was_asked_for_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B43: never above it, and the effective number is printed."""

    async def answer(row: Row) -> Row:
        for _ in range(3):
            await asyncio.sleep(0)
        return right(row)

    config = collection_config(
        tmp_path, [task(f"q{n}") for n in range(30)], agent_name="math_agent", num_samples_in_parallel=4
    )
    client = await collect(config, answer)
    assert client.most_in_flight == 4
    assert "at most 4 at once" in capsys.readouterr().err


# --- the table of what is under way -----------------------------------------------------------------------------------


async def test_the_table_says_who_waits_runs_and_is_tried_again() -> None:
    """B40, B54: every rollout under way is in it once, in one state, and gone when it has ended."""
    doors = {number: asyncio.Event() for number in range(3)}

    async def reply(row: Row) -> Any:
        await doors[row["_ng_task_index"]].wait()
        if row["_ng_task_index"] == 0 and "_ng_rollout_id" not in row:
            return FakeReply(b"busy", 503)
        return right(row)

    asleep = asyncio.Event()
    work = dispatcher(FakeClient(served(), reply), Admission(2))

    async def nap(seconds: float) -> None:
        await asleep.wait()

    work.retries = Retries(limit=1, sleep=nap, jitter=lambda: 1.0)
    tasks = [asyncio.create_task(work.run(row)) for row in numbered(3)]
    await settle()
    assert states(work) == {0: "running", 1: "running", 2: "queued"}
    doors[0].set()
    await settle()
    assert states(work) == {0: "waiting_to_retry", 1: "running", 2: "queued"}
    found = work.in_flight.snapshot()
    assert found["counts"] == {"queued": 1, "running": 1, "waiting_to_retry": 1}
    assert found["retries"] == 1 and found["admission"]["asked"] == 2
    assert found in [{**table, "entries": found["entries"]} for table in in_flight.snapshots()]
    for event in (asleep, *doors.values()):
        event.set()
    await asyncio.gather(*tasks)
    ended = work.in_flight.snapshot()
    assert ended["entries"] == [] and ended["ended"] == {"done": 3, "failed": 0, "drained": 0}
    assert ended["per_second"] > 0
    assert orjson.loads(orjson.dumps(found)) == found


async def test_an_entry_names_the_rollout_and_the_longest_comes_first() -> None:
    forever = asyncio.Event()

    async def reply(row: Row) -> Any:
        await forever.wait()

    work = dispatcher(FakeClient(served(), reply), Admission(5))
    row = task("q", _ng_task_index=7, _ng_rollout_index=2, _ng_attempt_index=1, _ng_rollout_id="mine")
    tasks = [asyncio.create_task(work.run(each)) for each in (row, *numbered(2))]
    await settle()
    entries = work.in_flight.snapshot(most=2)["entries"]
    assert len(entries) == 2 and work.in_flight.snapshot()["counts"]["running"] == 3
    first = entries[0]
    assert first["seconds"] >= entries[1]["seconds"]
    named = ("task", "repeat", "rollout_id", "attempt", "server", "state", "retries")
    assert [first[name] for name in named] == [7, 2, "mine", 1, "math_agent", "running", 0]
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(work.in_flight) == 0


def states(work: Dispatcher) -> dict[int, str]:
    return {entry["task"]: entry["state"] for entry in work.in_flight.snapshot()["entries"]}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("message", "told"),
    [("it broke", "A___agent: it broke"), ("A___agent: too late", "A___agent: too late")],
)
def test_a_failure_names_its_server_once(message: str, told: str) -> None:
    assert describe({"_ng_failure_cause": {"server": "A___agent", "message": message}}) == told
