"""How many rollouts are in flight: never more than asked for, fewer while a provider complains, and all again after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nemo_gym.rollouts.admission import MOST_QUIET_SECONDS, Admission


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Crowd:
    """Tasks that enter an admission and stay until they are told to leave."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.inside: list[asyncio.Event] = []
        self.most = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, count: int) -> None:
        self.tasks += [asyncio.create_task(self._visit()) for _ in range(count)]
        await self.settle()

    async def leave(self, count: int = 1, note: Any = None) -> None:
        """Let some go, each of which first says what it has heard."""
        for door in self.inside[:count]:
            if note is not None:
                note()
            door.set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    async def _visit(self) -> None:
        async with self.admission:
            door = asyncio.Event()
            self.inside.append(door)
            self.most = max(self.most, len(self.inside))
            try:
                await door.wait()
            finally:
                self.inside.remove(door)


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_never_more_than_asked_are_inside(clock: Clock) -> None:
    """B43: the number that was asked for is the number that is in flight."""
    crowd = Crowd(Admission(4, now=clock))
    await crowd.come(20)
    while crowd.inside:
        assert len(crowd.inside) <= 4 and crowd.admission.snapshot()["in_flight"] == len(crowd.inside)
        await crowd.leave()
    assert crowd.most == 4 and all(task.done() for task in crowd.tasks)


async def test_without_a_bound_everybody_is_inside(clock: Clock) -> None:
    crowd = Crowd(Admission(None, now=clock))
    await crowd.come(50)
    assert len(crowd.inside) == 50 and crowd.admission.snapshot()["limit"] is None
    crowd.admission.pressed()
    assert crowd.admission.limit == 25
    await crowd.come(1)
    assert len(crowd.inside) == 50
    for _ in range(20):
        clock.time += 10
        crowd.admission.eased()
    assert crowd.admission.snapshot()["limit"] is None
    await crowd.settle()
    assert len(crowd.inside) == 51
    await crowd.leave(51)


async def test_complaints_halve_the_bound_once_each_window_and_never_below_one(clock: Clock) -> None:
    told: list[str] = []
    crowd = Crowd(Admission(8, say=told.append, now=clock))
    await crowd.come(100)
    for _ in range(5):
        crowd.admission.pressed()
    assert crowd.admission.limit == 4
    clock.time += 60
    crowd.admission.pressed()
    assert crowd.admission.limit == 4, "eight are still inside: the first halving hasn't shown its effect"
    for limit in (2, 1, 1):
        await crowd.leave(max(0, len(crowd.inside) - crowd.admission.limit))
        clock.time += 60
        crowd.admission.pressed()
        assert crowd.admission.limit == limit
    await crowd.leave()
    assert len(crowd.inside) == 1
    assert told == [
        "The model's provider asks for fewer requests: at most 4 rollouts at once now, 8 again when it has recovered."
    ]
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    assert crowd.admission.in_flight == 0


async def test_it_recovers_step_by_step_and_says_so(clock: Clock) -> None:
    told: list[str] = []
    admission = Admission(32, say=told.append, now=clock)
    crowd = Crowd(admission)
    await crowd.come(40)
    admission.pressed()
    await crowd.leave(24)
    assert admission.limit == 16 == len(crowd.inside)
    limits = []
    for _ in range(9):
        admission.eased()
        admission.eased()
        clock.time += 10
        limits.append(admission.limit)
    assert limits == [16, 18, 20, 22, 24, 26, 28, 30, 32]
    assert told[1:] == ["The model's provider has recovered: 32 rollouts at once again."]
    assert admission.snapshot()["backed_off"] == 1
    await crowd.leave(100)


async def test_retry_after_keeps_everybody_out_for_that_long() -> None:
    """The waiters come in by themselves once it is over, although nobody leaves."""
    admission = Admission(4)
    async with admission:
        admission.pressed(0.05)
        waiting = asyncio.create_task(admission.__aenter__())
        await asyncio.sleep(0)
        assert not waiting.done() and admission.snapshot()["quiet_seconds"] > 0
        assert admission.limit == 1
    await asyncio.wait_for(waiting, 10)
    assert admission.snapshot() == {
        "asked": 4,
        "limit": 1,
        "in_flight": 1,
        "waiting": 0,
        "backed_off": 1,
        "quiet_seconds": 0.0,
    }


async def test_no_provider_stops_a_run_for_long(clock: Clock) -> None:
    admission = Admission(4, now=clock)
    async with admission:
        admission.pressed(1e9)
        assert admission.snapshot()["quiet_seconds"] == MOST_QUIET_SECONDS


async def test_who_gives_up_waiting_takes_nobodys_place(clock: Clock) -> None:
    """B40: cancelled at any moment, also at the very one it is let in."""
    crowd = Crowd(Admission(1, now=clock))
    await crowd.come(4)
    crowd.tasks[1].cancel()
    await crowd.settle()
    await crowd.leave()
    assert len(crowd.inside) == 1 and crowd.tasks[0].done() and not crowd.tasks[2].done()
    crowd.inside[0].set()
    while crowd.admission.snapshot()["waiting"]:
        await asyncio.sleep(0)
    assert len(crowd.inside) == 0 and crowd.admission.in_flight == 1
    crowd.tasks[3].cancel()  # it has its turn already and doesn't know yet
    await crowd.settle()
    assert crowd.admission.in_flight == 0 == len(crowd.inside)
    await crowd.come(1)
    assert len(crowd.inside) == 1
    await crowd.leave()


def test_at_least_one_must_be_allowed() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Admission(0)
