"""One episode at an environment server: let in, bounded in time, and cleaned up whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nemo_gym.schema.episodes import EpisodeFailure, EpisodeId
from nemo_gym.serve.deadline import lifted_deadline
from nemo_gym.serve.redaction import shown
from nemo_gym.serve.server_log import server_log

LOG = server_log("nemo_gym.base_environment_server")
FAILURE_HEADER = "X-NeMo-Gym-Episode-Failure"
"""On answers with a failure, whose status is 200: the stage it happened at."""

MAX_REASON_CHARS = 2_000
_SHARE_WHILE_OTHERS_WAIT = 0.9

CleanupCallback = Callable[[], Awaitable[None]]
T = TypeVar("T")


class HandledEpisodeError(Exception):
    """Ends an episode with a failure that says what happened."""

    def __init__(self, failure: EpisodeFailure) -> None:
        super().__init__(failure.failure_reason)
        self.failure = failure


@dataclass
class _CleanupEntry:
    """A callback that runs once; while it fails it stays active."""

    name: str
    callback: CleanupCallback
    active: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, timeout_seconds: float) -> None:
        async with asyncio.timeout(timeout_seconds), self.lock:
            if self.active:
                await self.callback()
                self.active = False


@dataclass
class CleanupHandle:
    """Runs a registered callback ahead of the others."""

    entry: _CleanupEntry
    timeout_seconds: float

    async def close(self) -> None:
        """Run the callback unless it has run. What it raises, or TimeoutError, comes through; cleanup then retries."""
        await self.entry.run(self.timeout_seconds)


@dataclass
class CleanupContext:
    """What an episode must leave behind as it found it."""

    episode_id: EpisodeId
    cleanup_timeout_seconds: float
    _cleanups: list[_CleanupEntry] = field(default_factory=list)

    def register_cleanup(self, name: str, callback: CleanupCallback) -> CleanupHandle:
        """Have `callback` run at the end of the episode, the last registered first."""
        entry = _CleanupEntry(name, callback)
        self._cleanups.append(entry)
        return CleanupHandle(entry, self.cleanup_timeout_seconds)

    async def aclose(self) -> None:
        """Run every callback that has not run, all within `cleanup_timeout_seconds`; failures are logged.

        A callback gets most of the time that is left, so that one which hangs leaves some to the others.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.cleanup_timeout_seconds
        while self._cleanups:
            entry = self._cleanups.pop()
            share = _SHARE_WHILE_OTHERS_WAIT if self._cleanups else 1.0
            try:
                await entry.run((deadline - clock()) * share)
            except (Exception, asyncio.CancelledError) as error:
                if _is_being_cancelled():
                    raise
                LOG.warning("Episode %s: cleaning up %s failed: %r", self.episode_id.capture_key, entry.name, error)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@asynccontextmanager
async def admitted(places: asyncio.Semaphore | None, timeout_seconds: float | None) -> AsyncIterator[None]:
    """One of the places for episodes, if they are counted; HandledEpisodeError when none gets free in time."""
    if places is None:
        yield
        return
    try:
        async with asyncio.timeout(timeout_seconds):
            await places.acquire()
    except TimeoutError:
        reason = f"No admission within {timeout_seconds:g} s: as many episodes run as max_concurrent_episodes allows."
        raise HandledEpisodeError(EpisodeFailure(failure_reason=reason, terminal=False, stage="admission")) from None
    try:
        yield
    finally:
        places.release()


async def run_bounded(
    run: Callable[[CleanupContext], Awaitable[T]], cleanup: CleanupContext, timeout_seconds: float | None
) -> T:
    """What `run` returns; `cleanup` is done afterwards in any case, also when the caller is cancelled meanwhile.

    Raises HandledEpisodeError when the time is over; a TimeoutError of somebody else's comes through as it is.
    """
    try:
        async with asyncio.timeout(timeout_seconds) as limit:
            return await run(cleanup)
    except TimeoutError as error:
        if not limit.expired():
            raise
        reason = f"The episode took longer than default_episode_timeout_seconds, {timeout_seconds:g} s."
        raise HandledEpisodeError(EpisodeFailure(failure_reason=reason, terminal=False)) from error
    finally:
        with lifted_deadline():
            await _to_its_end(cleanup.aclose())


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` even if cancelled meanwhile; the cancellation goes on afterwards."""
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
    task.result()


def unhandled(error: Exception) -> EpisodeFailure:
    """The failure that stands for an exception nobody expected."""
    reason = shown(f"{type(error).__name__}: {error}", MAX_REASON_CHARS)  # it may hold half a surrogate pair
    return EpisodeFailure(failure_reason=reason, terminal=True)


def places_of(max_concurrent: int | None, workers: int | None) -> asyncio.Semaphore | None:
    """The places of one of `workers` processes that share `max_concurrent`; None when they aren't counted."""
    return asyncio.Semaphore(max(1, max_concurrent // (workers or 1))) if max_concurrent else None
