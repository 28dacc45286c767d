"""Who waits for whom, and what ends the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from nemo_gym.judge import JudgeError
from resources_servers.genrm_compare.cohorts import (
    FAILURE_KINDS,
    CohortConflictError,
    CohortFailedError,
    CohortKey,
    Cohorts,
    Member,
    Patience,
    Reason,
)

GROUP = CohortKey("g", 0)
AGAIN = CohortKey("g", 1)
OLD_WAY = CohortKey(None, 0, ("task", "1", "p"))
FOREVER = 3600.0
Evaluate = Callable[[list[Any]], Awaitable[Sequence[float]]]


def member(index: int, response: str = "r", prompt: str = "p") -> Member[Any]:
    """The payload is the number that its reward will be."""
    return Member(index, prompt, f"{response}{index}", index * 10)


class Evaluation:
    """Gives each its payload, once it may; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[Any]] = []
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.was_cancelled = False
        self.error: BaseException | None = None
        self.extra = 0

    async def __call__(self, payloads: list[Any]) -> list[float]:
        self.asked.append(payloads)
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return [float(payload) for payload in payloads] + [0.0] * self.extra


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def cohorts(evaluate: Evaluate, size: int = 3, **patience: Any) -> Cohorts[Any]:
    usual = {"collection": FOREVER, "evaluation": FOREVER, "remembered": FOREVER, "most_remembered": 10}
    clock = patience.pop("clock", Clock())
    return Cohorts(size, Patience(**(usual | patience)), evaluate, clock=clock)


async def waiting(found: Cohorts[Any], key: CohortKey, *members: Member[Any]) -> list[asyncio.Task[float]]:
    """Tasks that have come as far as they come alone."""
    tasks = [asyncio.create_task(found.reward_of(key, each)) for each in members]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def failure_of(task: asyncio.Task[float]) -> CohortFailedError:
    with pytest.raises(CohortFailedError) as caught:
        await asyncio.wait_for(task, 10)
    return caught.value


async def conflict(found: Cohorts[Any], key: CohortKey, one: Member[Any]) -> str:
    with pytest.raises(CohortConflictError) as caught:
        await found.reward_of(key, one)
    return str(caught.value)


# --- collecting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [GROUP, OLD_WAY])
async def test_all_get_their_rewards_from_one_evaluation(key: CohortKey) -> None:
    evaluate = Evaluation()
    found = cohorts(evaluate)
    first = await waiting(found, key, member(2), member(0))
    assert evaluate.asked == []
    assert found.snapshot() == {"collecting": 1, "evaluating": 0, "remembered": 0}
    last = await waiting(found, key, member(1))
    assert await asyncio.gather(*first, *last) == [20.0, 0.0, 10.0]
    assert evaluate.asked == [[0, 10, 20]]


async def test_a_slow_group_does_not_hold_up_another() -> None:
    """B37"""
    release = asyncio.Event()

    async def evaluate(payloads: list[Any]) -> list[float]:
        if payloads[0] == "slow":
            await release.wait()
        return [1.0] * len(payloads)

    found = cohorts(evaluate, size=2)
    slow = await waiting(found, GROUP, Member(0, "p", "a", "slow"), Member(1, "p", "b", "slow"))
    quick = await waiting(found, CohortKey("h", 0), Member(0, "p", "a", "quick"), Member(1, "p", "b", "quick"))
    assert await asyncio.gather(*quick) == [1.0, 1.0]
    assert not any(task.done() for task in slow)
    release.set()
    assert await asyncio.gather(*slow) == [1.0, 1.0]


async def test_a_cohort_that_stays_incomplete_ends() -> None:
    """B38: who came hears who didn't, after a time that is bounded, and so does who comes after that."""
    evaluate = Evaluation()
    found = cohorts(evaluate, size=4, collection=0.05)
    came = await waiting(found, GROUP, member(0), member(1), member(3))
    for task in came:
        error = await failure_of(task)
        assert (error.reason, error.failure_kind) == (Reason.INCOMPLETE, "cohort_incomplete")
        assert "only 3 of 4 rollouts came within 0.05 s; missing: 2." in str(error)
    assert evaluate.asked == []
    assert (await failure_of((await waiting(found, GROUP, member(0)))[0])).reason is Reason.INCOMPLETE
    assert "comes too late" in await conflict(found, GROUP, member(2))
    assert found.snapshot() == {"collecting": 0, "evaluating": 0, "remembered": 1}


async def test_the_time_runs_from_the_first_to_come_and_ends_with_the_last() -> None:
    evaluate = Evaluation()
    evaluate.may_end.clear()
    found = cohorts(evaluate, size=2, collection=0.05)
    tasks = await waiting(found, GROUP, member(0), member(1))
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in tasks)
    evaluate.may_end.set()
    assert await asyncio.gather(*tasks) == [0.0, 10.0]


async def test_the_next_attempt_is_a_new_cohort() -> None:
    found = cohorts(Evaluation(), size=2, collection=0.02)
    [late] = await waiting(found, GROUP, member(0))
    await failure_of(late)
    tasks = await waiting(found, AGAIN, member(0), member(1))
    assert await asyncio.gather(*tasks) == [0.0, 10.0]


# --- coming twice -----------------------------------------------------------------------------------------------------


async def test_the_same_rollout_may_come_again() -> None:
    evaluate = Evaluation()
    found = cohorts(evaluate, size=2)
    twice = await waiting(found, GROUP, member(0), member(0))
    assert evaluate.asked == []
    rest = await waiting(found, GROUP, member(1))
    assert await asyncio.gather(*twice, *rest) == [0.0, 0.0, 10.0]
    assert await found.reward_of(GROUP, member(1)) == 10.0
    assert len(evaluate.asked) == 1


async def test_another_response_in_the_same_place_does_not_count() -> None:
    found = cohorts(Evaluation(), size=2)
    first = await waiting(found, GROUP, member(0))
    assert "another response" in await conflict(found, GROUP, member(0, "other"))
    rest = await waiting(found, GROUP, member(1))
    assert await asyncio.gather(*first, *rest) == [0.0, 10.0]
    assert "another response" in await conflict(found, GROUP, member(1, "other"))


async def test_another_prompt_does_not_belong() -> None:
    found = cohorts(Evaluation(), size=2)
    first = await waiting(found, GROUP, member(0))
    assert "another prompt" in await conflict(found, GROUP, member(1, prompt="q"))
    assert "another prompt" in await conflict(found, AGAIN, member(1, prompt="q"))
    assert not first[0].done()
    found.shut_down()
    assert (await failure_of(first[0])).reason is Reason.SHUTDOWN


async def test_who_gives_up_stays_a_member() -> None:
    evaluate = Evaluation()
    found = cohorts(evaluate, size=2)
    [gone] = await waiting(found, GROUP, member(0))
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await found.reward_of(GROUP, member(1)) == 10.0
    assert await found.reward_of(GROUP, member(0)) == 0.0
    assert evaluate.asked == [[0, 10]]


async def test_giving_up_while_it_is_evaluated_ends_nothing() -> None:
    evaluate = Evaluation()
    evaluate.may_end.clear()
    found = cohorts(evaluate, size=2)
    one, two = await waiting(found, GROUP, member(0), member(1))
    one.cancel()
    await asyncio.sleep(0)
    assert not evaluate.was_cancelled
    evaluate.may_end.set()
    assert await two == 10.0


# --- attempts ---------------------------------------------------------------------------------------------------------


async def test_a_newer_attempt_ends_the_one_before() -> None:
    found = cohorts(Evaluation(), size=2)
    [old] = await waiting(found, GROUP, member(0))
    new = await waiting(found, AGAIN, member(0, "new"))
    error = await failure_of(old)
    assert (error.reason, error.failure_kind) == (Reason.SUPERSEDED, "cancelled")
    assert "superseded by attempt 1" in str(error)
    assert "attempt 1 has begun already" in await conflict(found, GROUP, member(1))
    new += await waiting(found, AGAIN, member(1, "new"))
    assert await asyncio.gather(*new) == [0.0, 10.0]
    assert "attempt 1 has begun already" in await conflict(found, GROUP, member(0))


async def test_also_while_it_is_evaluated() -> None:
    evaluate = Evaluation()
    evaluate.may_end.clear()
    found = cohorts(evaluate, size=1)
    [old] = await waiting(found, GROUP, member(0))
    new = await waiting(found, AGAIN, member(0))
    assert (await failure_of(old)).reason is Reason.SUPERSEDED
    assert evaluate.was_cancelled
    evaluate.may_end.set()
    assert await new[0] == 0.0


async def test_attempts_without_a_group_id_are_side_by_side() -> None:
    found = cohorts(Evaluation(), size=1)
    later = CohortKey(None, 1, OLD_WAY.fallback)
    assert await found.reward_of(later, member(0)) == 0.0
    assert await found.reward_of(OLD_WAY, member(0)) == 0.0


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason", "told"),
    [
        (JudgeError("429"), Reason.JUDGE, "429"),
        (ValueError("odd"), Reason.ERROR, "ValueError: odd"),
        (TimeoutError("its own"), Reason.ERROR, "TimeoutError: its own"),
    ],
)
async def test_an_evaluation_that_fails_fails_for_all(error: Exception, reason: Reason, told: str) -> None:
    evaluate = Evaluation()
    evaluate.error = error
    found = cohorts(evaluate, size=2)
    for task in await waiting(found, GROUP, member(0), member(1)):
        failed = await failure_of(task)
        assert (failed.reason, failed.failure_kind) == (reason, FAILURE_KINDS[reason])
        assert told in str(failed)
    assert (await failure_of((await waiting(found, GROUP, member(0)))[0])).reason is reason
    assert len(evaluate.asked) == 1


async def test_an_evaluation_has_its_time() -> None:
    evaluate = Evaluation()
    evaluate.may_end.clear()
    found = cohorts(evaluate, size=1, evaluation=0.05)
    error = await failure_of((await waiting(found, GROUP, member(0)))[0])
    assert (error.reason, error.failure_kind) == (Reason.TIMEOUT, "judge_failed")
    assert "not evaluated within 0.05 s" in str(error)
    assert evaluate.was_cancelled


async def test_rewards_must_be_as_many_as_rollouts() -> None:
    evaluate = Evaluation()
    evaluate.extra = 1
    error = await failure_of((await waiting(cohorts(evaluate, size=1), GROUP, member(0)))[0])
    assert "2 rewards for 1 rollouts" in str(error)


async def test_shutting_down_ends_all() -> None:
    evaluate = Evaluation()
    evaluate.may_end.clear()
    found = cohorts(evaluate, size=2)
    tasks = await waiting(found, GROUP, member(0))
    tasks += await waiting(found, CohortKey("h", 0), member(0), member(1))
    found.shut_down()
    for task in tasks:
        error = await failure_of(task)
        assert (error.reason, error.failure_kind) == (Reason.SHUTDOWN, "shutdown")
    await asyncio.sleep(0)
    assert evaluate.was_cancelled


async def test_without_a_group_id_a_failed_cohort_stays_shut() -> None:
    clock = Clock()
    found = cohorts(Evaluation(), size=2, collection=0.02, remembered=100.0, clock=clock)
    error = await failure_of((await waiting(found, OLD_WAY, member(0)))[0])
    assert "fresh _ng_group_id" in str(error)
    assert "fresh _ng_group_id" in await conflict(found, OLD_WAY, member(1))
    clock.now = 100.0
    tasks = await waiting(found, OLD_WAY, member(0), member(1))
    assert await asyncio.gather(*tasks) == [0.0, 10.0]


async def test_without_a_group_id_a_cohort_that_was_scored_is_forgotten() -> None:
    evaluate = Evaluation()
    found = cohorts(evaluate, size=1)
    assert await found.reward_of(OLD_WAY, member(0)) == 0.0
    assert await found.reward_of(OLD_WAY, member(0, "other")) == 0.0
    assert len(evaluate.asked) == 2
    assert found.snapshot()["remembered"] == 0


# --- what is remembered -----------------------------------------------------------------------------------------------


async def test_only_so_many_are_remembered() -> None:
    found = cohorts(evaluate := Evaluation(), size=1, most_remembered=2)
    for name in "abc":
        await found.reward_of(CohortKey(name, 0), member(0))
    assert found.snapshot()["remembered"] == 2
    await found.reward_of(CohortKey("c", 0), member(0))
    assert len(evaluate.asked) == 3
    await found.reward_of(CohortKey("a", 0), member(0, "other"))
    assert len(evaluate.asked) == 4


async def test_for_so_long() -> None:
    clock = Clock()
    found = cohorts(evaluate := Evaluation(), size=1, remembered=10.0, clock=clock)
    await found.reward_of(AGAIN, member(0))
    clock.now = 9.9
    await found.reward_of(AGAIN, member(0))
    assert "has begun already" in await conflict(found, GROUP, member(0))
    clock.now = 10.0
    await found.reward_of(GROUP, member(0))
    assert len(evaluate.asked) == 2


async def test_or_for_ever() -> None:
    clock = Clock()
    found = cohorts(evaluate := Evaluation(), size=1, remembered=None, clock=clock)
    await found.reward_of(GROUP, member(0))
    clock.now = 1e9
    await found.reward_of(GROUP, member(0))
    assert len(evaluate.asked) == 1


async def test_nothing_is_kept_of_the_rollouts() -> None:
    found = cohorts(Evaluation(), size=1)
    await found.reward_of(GROUP, member(0))
    [cohort] = found._cohorts.values()
    assert cohort.members == {}
    assert cohort.digests == {0: "r0"}


async def test_another_prompt_belongs_to_no_cohort_without_a_group_id_either() -> None:
    found = cohorts(Evaluation(), size=2)
    first = await waiting(found, OLD_WAY, member(0))
    assert "another prompt than those before" in await conflict(found, OLD_WAY, member(1, prompt="q"))
    found.shut_down()
    assert (await failure_of(first[0])).reason is Reason.SHUTDOWN
