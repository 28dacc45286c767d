"""What trainers call: `RolloutCollectionHelper.run_examples`."""

from __future__ import annotations

import asyncio
import gc
import pickle
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from nemo_gym.config.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
)
from nemo_gym.rollout_collection import DispatchLatencyTracker, RolloutCollectionHelper
from nemo_gym.rollouts.errors import RoutingError
from nemo_gym.token_id_capture.store import TokenCaptureStore
from tests.unit.rollouts.fakes import FakeClient, FakeReply, Helper, Row, agent, relay, right, served, task
from tests.unit.token_id_capture.calls import call, said


def rows(count: int, **fields: Any) -> list[Row]:
    return [task(f"q{number}", agent_ref={"name": "math_agent"}, _rowidx=number, **fields) for number in range(count)]


class Gate:
    """Answers a row when the test says so."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self._doors: dict[int, asyncio.Event] = {}

    def door(self, number: int) -> asyncio.Event:
        return self._doors.setdefault(number, asyncio.Event())

    async def __call__(self, row: Row) -> Row:
        self.started.append(row["_rowidx"])
        await self.door(row["_rowidx"]).wait()
        return {"reward": float(row["_rowidx"])}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_results_come_in_completion_order_of_rows_started_in_input_order() -> None:
    gate, examples = Gate(), rows(3)
    iterator = iter(Helper(FakeClient(served(), gate)).run_examples(examples))
    await settle()
    assert gate.started == [0, 1, 2]
    got = []
    for number in (2, 0, 1):
        gate.door(number).set()
        row, result = await next(iterator)
        got.append((row["_rowidx"], result))
    assert got == [(2, {"reward": 2.0}), (0, {"reward": 0.0}), (1, {"reward": 1.0})]
    with pytest.raises(StopIteration):
        _ = next(iterator)


async def test_rows_are_the_callers_own_objects_and_results_are_what_run_answered() -> None:
    examples = rows(2)
    answer = {"reward": 0.5, "anything": [1, {"x": None}]}
    pairs = [await each for each in Helper(FakeClient(served(), lambda row: answer)).run_examples(examples)]
    assert {id(row) for row, _ in pairs} == {id(row) for row in examples}
    assert all(result == answer for _, result in pairs)


def test_iterating_outside_a_loop_starts_nothing_until_something_is_awaited() -> None:
    client = FakeClient(served(), lambda row: {"reward": 1.0})
    awaitables = list(Helper(client).run_examples(rows(2)))
    assert client.runs == []

    async def consume() -> list[Any]:
        return [await each for each in awaitables]

    assert len(asyncio.run(consume())) == 2


async def test_one_failure_raises_from_its_own_awaitable_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(row: Row) -> Any:
        return FakeReply({"why": "boom"}, status=500) if row["_rowidx"] == 1 else {"reward": 1.0}

    outcomes: list[Any] = []
    for each in Helper(FakeClient(served(), answer)).run_examples(rows(3)):
        try:
            outcomes.append((await each)[1])
        except aiohttp.ClientResponseError as error:
            copy = pickle.loads(pickle.dumps(error))
            outcomes.append((error.status, error.response_content, copy.status, copy.response_content))  # type: ignore[attr-defined]
    content = orjson.dumps({"why": "boom"})
    assert outcomes == [{"reward": 1.0}, (500, content, 500, content), {"reward": 1.0}]
    assert (
        '[rollout_collection] /run failed status=500 row={"agent_name":"math_agent",'
        '"environment_server":"math_environment_server"}' in capsys.readouterr().out
    )


async def test_failures_are_not_tried_again_and_become_rows_where_asked() -> None:
    client = FakeClient(served(), lambda row: FakeReply(b"", status=503))
    ((_, result),) = [await each for each in Helper(client).run_examples(rows(1), route_failures_to_sidecar=True)]
    assert (result["_ng_failure_class"], result["_ng_failure_http_status"]) == ("agent_request_failed", 503)
    assert len(client.runs) == 1


async def test_an_error_of_the_program_is_raised_even_with_failure_rows() -> None:
    def broken(row: Row) -> Any:
        raise KeyError("a bug")

    (each,) = Helper(FakeClient(served(), broken)).run_examples(rows(1), route_failures_to_sidecar=True)
    with pytest.raises(KeyError):
        await each


async def test_the_semaphore_bounds_what_is_in_flight() -> None:
    async def answer(row: Row) -> Row:
        await asyncio.sleep(0)
        return {"reward": 1.0}

    client = FakeClient(served(), answer)
    for each in Helper(client).run_examples(rows(20), semaphore=asyncio.Semaphore(3)):
        await each
    assert client.most_in_flight == 3


async def test_bounded_residency_admits_one_row_per_result_taken() -> None:
    """B49: who takes results slowly holds up what makes them."""
    gate = Gate()
    iterator = Helper(FakeClient(served(), gate)).run_examples(rows(6), max_resident_tasks=2)
    await settle()
    assert gate.started == []
    gate.door(1).set()
    await next(iterator)
    await settle()
    assert gate.started == [0, 1, 2]
    gate.door(0).set()
    gate.door(2).set()
    await settle()
    assert gate.started == [0, 1, 2], "finished results nobody took count as resident"
    await next(iterator)
    await settle()
    assert gate.started == [0, 1, 2, 3]
    await iterator.aclose()


async def test_aclose_cancels_what_runs_and_starts_nothing_more() -> None:
    gate = Gate()
    client = FakeClient(served(), gate)
    iterator = Helper(client).run_examples(rows(5), max_resident_tasks=2)
    gate.door(0).set()
    await next(iterator)
    await settle()
    await iterator.aclose()
    assert client.in_flight == 0
    assert gate.started == [0, 1, 2]
    with pytest.raises(StopIteration):
        _ = next(iterator)


async def test_a_residency_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_resident_tasks is 0"):
        Helper(FakeClient(served(), right)).run_examples(rows(1), max_resident_tasks=0)


async def test_agents_are_resolved_and_servers_stamped_before_anything_is_awaited() -> None:
    examples = [task("q", task_source="math"), task("p", agent_ref={"name": "math_agent"})]
    Helper(FakeClient(served(), right)).run_examples(examples, environment_server_name="math_environment_server")
    assert [row["agent_ref"] for row in examples] == [{"name": "math_agent"}] * 2
    assert {row["_ng_environment_server"] for row in examples} == {"math_environment_server"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"agent_ref": {"name": "math_agnet"}}, "There is no agent `math_agnet`. Did you mean `math_agent`"),
        ({"agent_ref": {"name": "math"}}, "`math` is no agent: it is one of the resources_servers"),
        ({"task_source": "maths"}, "task_source `maths` is not in the config. Did you mean `math`"),
        ({"task_source": "math_environment_server"}, "no rows belong to it"),
        ({"task_source": "head_server"}, "`head_server` is not a server"),
        ({"_ng_environment_server": "nowhere"}, "There is no environment server `nowhere`"),
        (
            {"_ng_environment_server": "math_environment_server", "agent_ref": {"name": "other"}},
            "the environment server `math_environment_server` has no agent `other`",
        ),
    ],
)
async def test_wrong_names_are_told_before_the_first_post(row: Row, message: str) -> None:
    client = FakeClient(served(), right)
    with pytest.raises(RoutingError) as raised:
        Helper(client).run_examples([*rows(1), task("q", **row)])
    assert message.lower() in str(raised.value).lower()
    assert client.posts == []


async def test_a_server_bound_to_one_resources_server_runs_no_rows_of_another() -> None:
    duel = {
        "entrypoint": "app.py",
        "agent_server": {"type": "responses_api_agents", "name": "math_agent"},
        "resources_server": {"type": "resources_servers", "name": "math"},
    }
    config = served(
        bound={"environment_servers": {"duel": duel}},
        other={"resources_servers": {"other": {"entrypoint": "app.py", "domain": "math"}}},
    )
    client = FakeClient(config, right)
    fine = task("q", task_source="math", _ng_environment_server="bound")
    assert len([await each for each in Helper(client).run_examples([fine])]) == 1
    with pytest.raises(RoutingError, match="Rows of `other` can't run on `bound`, which is bound to `math`"):
        Helper(client).run_examples([{**fine, "task_source": "other"}])


async def test_several_wrong_sources_are_told_together() -> None:
    with pytest.raises(RoutingError) as raised:
        Helper(FakeClient(served(), right)).run_examples([task("a", task_source="x1"), task("b", task_source="x2")])
    assert "`x1`" in str(raised.value) and "`x2`" in str(raised.value)


async def test_an_agent_needs_exactly_one_environment_server() -> None:
    bare = served(lonely=agent())
    with pytest.raises(AgentWithoutEnvironmentServerError, match="No environment server fronts the agent `lonely`"):
        Helper(FakeClient(bare, right)).run_examples([task("q", agent_ref={"name": "lonely"})])
    doubled = served(second_environment_server=relay("math_agent"))
    with pytest.raises(AmbiguousEnvironmentServerError, match="has several environment servers"):
        Helper(FakeClient(doubled, right)).run_examples(rows(1))


async def test_an_agent_its_verifier_does_not_list_is_refused_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    picky = {"entrypoint": "app.py", "domain": "math", "allowed_agents": ["other_agent"]}
    config = served(math={"resources_servers": {"math": picky}})
    with pytest.raises(RoutingError, match="is a simple_agent, which `math` does not support"):
        Helper(FakeClient(config, right)).run_examples(rows(1))
    config.allow_unsupported_pairing = True
    Helper(FakeClient(config, right)).run_examples([])
    assert len([await each for each in Helper(FakeClient(config, right)).run_examples(rows(1))]) == 1
    config.allow_unsupported_pairing = False
    monkeypatch.setenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING", "1")
    assert len([await each for each in Helper(FakeClient(config, right)).run_examples(rows(1))]) == 1


async def test_task_set_rows_are_sent_as_episodes_and_come_back_flat() -> None:
    def episode(body: Row) -> Row:
        assert body["episode_id"] == {"rollout_id": "3-1", "attempt": 2}
        return {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], "result": {"reward": 1.0}}

    row = {
        "task_id": {"taskset": "ts", "task_id": "q7"},
        "task_input": {"x": 1},
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "_ng_attempt_index": 2,
        "_ng_environment_server": "math_environment_server",
    }
    client = FakeClient(served(), episode)
    ((got, result),) = [await each for each in Helper(client).run_examples([row])]
    assert got is row
    assert client.runs[0]["task"] == {"task_id": row["task_id"], "task_input": {"x": 1}}
    assert result == {"reward": 1.0, "_ng_task_id": {"taskset": "ts", "task_id": "q7"}}


async def test_a_spent_budget_starts_nothing() -> None:
    tracker = DispatchLatencyTracker()
    client = FakeClient(served(), right)
    results = [
        (await each)[1]
        for each in Helper(client).run_examples(
            rows(3), semaphore=asyncio.Semaphore(1), dispatch_budget_s=0.0, latency_tracker=tracker
        )
    ]
    assert client.posts == []
    assert tracker.drained == 3
    assert all(result["_ng_dispatch_drained"] and result["_ng_failure_class"] == "cancelled" for result in results)


def test_resolve_task_sources_leaves_rows_with_an_agent_alone() -> None:
    examples = [task("a", task_source="math"), task("b", agent_ref={"name": "x", "k": 1}, task_source="math")]
    RolloutCollectionHelper.resolve_task_sources(examples, served())
    assert [row["agent_ref"] for row in examples] == [{"name": "math_agent"}, {"name": "x", "k": 1}]


async def test_captured_tokens_stay_where_they_are_for_the_trainer(tmp_path: Path) -> None:
    """Spec 40 §8.4: a result is what `/run` returned; folding captured tokens in is for others to do."""
    store = TokenCaptureStore(tmp_path / "tokens")
    answer = {"response": {"output": [said("x")]}, "reward": 1.0}

    async def run(row: Row) -> Row:
        await store.put(call("call-1", [1], [2], rollout_id="0-0", output=[said("x")]))
        return answer

    capture = {"enabled": True, "dir": str(store.root)}
    config = served(token_id_capture=capture, math_agent=agent(token_id_capture=True))
    (row,) = rows(1, _ng_task_index=0, _ng_rollout_index=0)
    ((_, result),) = [await each for each in Helper(FakeClient(config, run)).run_examples([row])]
    assert result == answer
    assert (await store.freeze("0-0")).entries[0].generation_token_ids == [2], "still there to be finalised"


async def test_failures_of_rows_that_nobody_waits_for_any_more_are_no_news() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    iterator = Helper(FakeClient(served(), lambda row: FakeReply(b"", status=500))).run_examples(rows(3))
    with pytest.raises(aiohttp.ClientResponseError):
        await next(iterator)
    await settle()
    del iterator
    gc.collect()
    assert told == []
