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


async def test_it_recovers_fast_to_what_was_good_then_by_steps_and_says_so(clock: Clock) -> None:
    told: list[str] = []
    admission = Admission(64, say=told.append, now=clock)
    crowd = Crowd(admission)
    await crowd.come(80)
    for _ in range(4):
        admission.pressed()
        clock.time += 10
        await crowd.leave(max(0, len(crowd.inside) - (admission.limit or 0)))
    assert admission.limit == 4 == len(crowd.inside)
    limits = []
    for _ in range(13):
        for _ in range(2):
            admission.eased()
        limits.append(admission.limit)
        clock.time += 2 if (admission.limit or 0) < 32 else 5
    assert limits == [8, 16, 32, 36, 40, 44, 48, 52, 56, 60, 60, 64, 64]
    assert told[1:] == ["The model's provider has recovered: 64 rollouts at once again."]
    assert admission.snapshot()["backed_off"] == 1
    await crowd.leave(200)


async def test_it_grows_only_where_nobody_complains(clock: Clock) -> None:
    admission = Admission(16, now=clock)
    crowd = Crowd(admission)
    await crowd.come(16)
    admission.pressed()
    await crowd.leave(8)
    for _ in range(9):
        clock.time += 1
        admission.eased()
        admission.pressed()
    assert admission.limit == 8, "good answers between the complaints are no recovery"
    clock.time += 1
    admission.pressed()
    assert admission.limit == 4
    clock.time += 10
    admission.eased()
    assert admission.limit == 8, "one long complaint leaves what is known to be good as it began"
    admission.pressed()
    admission.eased()
    assert admission.limit == 4, "a complaint about a raised bound counts at once"
    await crowd.leave(100)


class Provider:
    """Rollouts of a second each, in simulated time, against a provider that takes `capacity` requests at once."""

    def __init__(self, admission: Admission, clock: Clock) -> None:
        self.admission, self.clock = admission, clock
        self.capacity = 10**9
        self.limits: list[int] = []
        self.complaints = 0

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.admission.in_flight = under_way = self.admission.limit or 0
            refused = max(0, under_way - self.capacity)
            self.complaints += refused
            self.clock.time += 1
            for number in range(under_way):
                (self.admission.pressed if number < refused else self.admission.eased)()
            self.limits.append(self.admission.limit or 0)


async def test_an_outage_is_made_up_for_within_about_a_minute(clock: Clock) -> None:
    provider = Provider(Admission(256, now=clock), clock)
    await provider.run(5)
    assert provider.limits[-1] == 256
    provider.capacity = 0
    await provider.run(90)
    assert provider.limits[-1] == 1
    provider.capacity = 10**9
    await provider.run(16)
    assert provider.limits[-1] >= 128
    await provider.run(50)
    assert provider.limits[-1] == 256


async def test_a_provider_with_room_for_some_is_kept_busy(clock: Clock) -> None:
    """In the long run most of its room is used, and few requests are refused."""
    provider = Provider(Admission(256, now=clock), clock)
    provider.capacity = 100
    await provider.run(600)
    settled = provider.limits[100:]
    assert sum(min(limit, 100) for limit in settled) / len(settled) > 70
    assert provider.complaints / sum(provider.limits) < 0.1


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
