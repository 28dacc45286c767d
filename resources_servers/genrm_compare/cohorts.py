"""Rollouts of one prompt that are scored together: who waits for whom, for how long, and what each of them gets.

A cohort collects its members until all are there, is then evaluated once, and gives each its reward. It never waits for
ever: what doesn't come in time ends it, with the reason, for all that came.

Everything happens on one event loop, and nothing here is held while something is waited for: what one cohort waits for
is nothing to another.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from nemo_gym.errors import GymError
from nemo_gym.judge import JudgeError
from nemo_gym.schema.failure_kinds import CANCELLED, COHORT_INCOMPLETE, JUDGE_FAILED, SHUTDOWN, VERIFIER_ERROR

P = TypeVar("P")


class Reason(StrEnum):
    """Why a cohort came to nothing."""

    INCOMPLETE = "incomplete"
    JUDGE = "judge"
    TIMEOUT = "timeout"
    SUPERSEDED = "superseded"
    SHUTDOWN = "shutdown"
    ERROR = "error"


FAILURE_KINDS = {
    Reason.INCOMPLETE: COHORT_INCOMPLETE,
    Reason.JUDGE: JUDGE_FAILED,
    Reason.TIMEOUT: JUDGE_FAILED,
    Reason.SUPERSEDED: CANCELLED,
    Reason.SHUTDOWN: SHUTDOWN,
    Reason.ERROR: VERIFIER_ERROR,
}


class CohortFailedError(GymError):
    """A cohort came to nothing: nobody in it was measured."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.failure_kind = FAILURE_KINDS[reason]


class CohortConflictError(GymError):
    """A member doesn't belong into the cohort it names."""


@dataclass(frozen=True)
class CohortKey:
    """Which cohort. `group` is what the caller calls it; without one, which is the old way, `fallback` tells cohorts
    apart, and may mean another one later."""

    group: str | int | None
    attempt: int
    fallback: tuple[str, ...] = ()

    @property
    def is_legacy(self) -> bool:
        return self.group is None

    def __str__(self) -> str:
        name = "a cohort without a group id" if self.group is None else f"group {self.group!r}"
        return f"{name}, attempt {self.attempt}"


@dataclass(frozen=True)
class Member(Generic[P]):
    """A rollout: its place in the cohort, digests of its prompt and of its response, and what evaluation needs."""

    index: int
    prompt: str
    response: str
    payload: P


@dataclass(frozen=True)
class Patience:
    """In seconds: for all members to come, for the evaluation, and for how long what came of it is remembered (None for
    no end). No more than `most_remembered` cohorts are."""

    collection: float
    evaluation: float
    remembered: float | None
    most_remembered: int


@dataclass(eq=False)
class _Cohort(Generic[P]):
    key: CohortKey
    size: int
    prompt: str
    done: asyncio.Future[Sequence[float]]
    members: dict[int, Member[P]] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    evaluation: asyncio.Task[None] | None = None
    ended_at: float | None = None

    @property
    def is_collecting(self) -> bool:
        return self.ended_at is None and self.evaluation is None

    def place(self, member: Member[P]) -> bool:
        """Take a member in; whether it is new. Raises CohortConflictError."""
        if member.prompt != self.prompt:
            raise CohortConflictError(f"{self.key}: rollout {member.index} has another prompt than those before it.")
        known = self.digests.get(member.index)
        if known is not None and known != member.response:
            raise CohortConflictError(f"{self.key}: rollout {member.index} was there with another response.")
        if known is not None:
            return False
        if not self.is_collecting:
            raise CohortConflictError(f"{self.key}: rollout {member.index} comes too late.{self.advice()}")
        self.members[member.index] = member
        self.digests[member.index] = member.response
        return True

    def advice(self) -> str:
        """What to do about a cohort that came to nothing."""
        fresh = "a fresh _ng_group_id" if self.key.is_legacy else "the next _ng_group_attempt"
        return f" Give the rollouts {fresh} to run them again."


class Cohorts(Generic[P]):
    """The cohorts of `size` members, evaluated by `evaluate`, which gives a reward for each payload, in order."""

    def __init__(
        self,
        size: int,
        patience: Patience,
        evaluate: Callable[[list[P]], Awaitable[Sequence[float]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size, self._patience, self._evaluate, self._clock = size, patience, evaluate, clock
        self._cohorts: dict[CohortKey, _Cohort[P]] = {}
        self._latest: dict[str | int, _Cohort[P]] = {}
        self._ended: OrderedDict[CohortKey, _Cohort[P]] = OrderedDict()

    async def reward_of(self, key: CohortKey, member: Member[P]) -> float:
        """Wait for the cohort's evaluation, and return the member's reward.

        Whoever stops waiting stops for itself only. Raises CohortConflictError, CohortFailedError.
        """
        self._forget_old()
        cohort = self._cohort(key, member)
        if cohort.place(member):
            self._has_grown(cohort)
        rewards = await asyncio.shield(cohort.done)
        return rewards[member.index]

    def shut_down(self) -> None:
        """End every cohort that hasn't ended."""
        for cohort in list(self._cohorts.values()):
            if cohort.ended_at is None:
                self._fail(cohort, Reason.SHUTDOWN, f"{cohort.key}: the server shuts down.")

    def snapshot(self) -> dict[str, int]:
        """How many cohorts collect, are evaluated, and are remembered."""
        running = [cohort for cohort in self._cohorts.values() if cohort.ended_at is None]
        collecting = sum(1 for cohort in running if cohort.is_collecting)
        return {"collecting": collecting, "evaluating": len(running) - collecting, "remembered": len(self._ended)}

    def _cohort(self, key: CohortKey, member: Member[P]) -> _Cohort[P]:
        """The cohort of a key, a new one if it has none. Raises CohortConflictError for an attempt that is over."""
        latest = None if key.group is None else self._latest.get(key.group)
        if latest is not None and key.attempt < latest.key.attempt:
            raise CohortConflictError(f"{key}: attempt {latest.key.attempt} has begun already.")
        if latest is not None and member.prompt != latest.prompt:
            raise CohortConflictError(f"{key}: the group has begun with another prompt.")
        cohort = self._cohorts.get(key)
        if cohort is not None:
            return cohort
        if latest is not None and latest.ended_at is None:
            self._fail(latest, Reason.SUPERSEDED, f"{latest.key} was superseded by attempt {key.attempt}.")
        return self._begun(key, member.prompt)

    def _begun(self, key: CohortKey, prompt: str) -> _Cohort[P]:
        loop = asyncio.get_running_loop()
        cohort: _Cohort[P] = _Cohort(key, self._size, prompt, loop.create_future())
        cohort.done.add_done_callback(_seen)
        cohort.timer = loop.call_later(self._patience.collection, self._expire, cohort)
        self._cohorts[key] = cohort
        if key.group is not None:
            self._latest[key.group] = cohort
        return cohort

    def _has_grown(self, cohort: _Cohort[P]) -> None:
        if len(cohort.members) == cohort.size:
            assert cohort.timer is not None
            cohort.timer.cancel()
            cohort.evaluation = asyncio.get_running_loop().create_task(self._evaluated(cohort))

    def _expire(self, cohort: _Cohort[P]) -> None:
        missing = [str(index) for index in range(cohort.size) if index not in cohort.members]
        self._fail(
            cohort,
            Reason.INCOMPLETE,
            f"{cohort.key}: only {len(cohort.members)} of {cohort.size} rollouts came within "
            f"{self._patience.collection:g} s; missing: {', '.join(missing)}.{cohort.advice()}",
        )

    async def _evaluated(self, cohort: _Cohort[P]) -> None:
        payloads = [cohort.members[index].payload for index in range(cohort.size)]
        try:
            async with asyncio.timeout(self._patience.evaluation) as limit:
                rewards = await self._evaluate(payloads)
                if len(rewards) != cohort.size:
                    raise ValueError(f"{len(rewards)} rewards for {cohort.size} rollouts")
        except JudgeError as error:
            self._fail(cohort, Reason.JUDGE, f"{cohort.key}: {error}{cohort.advice()}")
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                told = f"{cohort.key}: it was not evaluated within {self._patience.evaluation:g} s.{cohort.advice()}"
                self._fail(cohort, Reason.TIMEOUT, told)
            else:
                told = f"{cohort.key}: the evaluation failed: {type(error).__name__}: {error}{cohort.advice()}"
                self._fail(cohort, Reason.ERROR, told)
        else:
            self._end(cohort)
            if not cohort.done.done():
                cohort.done.set_result(rewards)

    def _fail(self, cohort: _Cohort[P], reason: Reason, message: str) -> None:
        if cohort.ended_at is not None:
            return
        self._end(cohort, failed=True)
        cohort.done.set_exception(CohortFailedError(reason, message))
        if cohort.evaluation is not None and cohort.evaluation is not asyncio.current_task():
            cohort.evaluation.cancel()

    def _end(self, cohort: _Cohort[P], *, failed: bool = False) -> None:
        """Only digests and what came of it are kept; nothing of a cohort that the next one of its kind might be."""
        if cohort.timer is not None:
            cohort.timer.cancel()
        cohort.members.clear()
        cohort.ended_at = self._clock()
        if cohort.key.is_legacy and not failed:
            self._forget(cohort)
        else:
            self._ended[cohort.key] = cohort
            self._forget_old()

    def _forget_old(self) -> None:
        limit = self._patience.remembered
        while self._ended:
            first = next(iter(self._ended.values()))
            assert first.ended_at is not None
            is_old = limit is not None and self._clock() - first.ended_at >= limit
            if not is_old and len(self._ended) <= self._patience.most_remembered:
                return
            self._forget(first)

    def _forget(self, cohort: _Cohort[P]) -> None:
        self._ended.pop(cohort.key, None)
        self._cohorts.pop(cohort.key, None)
        group = cohort.key.group
        if group is not None and self._latest.get(group) is cohort:
            del self._latest[group]


def _seen(done: asyncio.Future[Sequence[float]]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not done.cancelled():
        done.exception()
