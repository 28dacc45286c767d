"""Awaitables in completion order over work that starts in input order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CompletionIterator(Generic[T]):
    """Yields `total` awaitables; the n-th one resolves to the n-th result to be there, or raises its exception.

    Without a bound all work is started at once (when constructed in a running loop, else with the first await). With
    `max_resident_tasks` that many are started at the first await, and one more each time a result is taken: finished
    results that nobody took count as resident. One failure doesn't cancel the others.
    """

    def __init__(
        self, awaitables: Iterable[Coroutine[Any, Any, T]], *, max_resident_tasks: int | None = None, total: int
    ) -> None:
        if max_resident_tasks is not None and max_resident_tasks < 1:
            raise ValueError(f"max_resident_tasks is {max_resident_tasks}: at least one rollout must be in memory")
        self._source: Iterator[Coroutine[Any, Any, T]] = iter(awaitables)
        self._bound = max_resident_tasks
        self._to_yield = total
        self._resident: set[asyncio.Task[T]] = set()
        self._finished: asyncio.Queue[asyncio.Task[T]] = asyncio.Queue()
        self._started = False
        if self._bound is None and _loop_is_running():
            self._start()

    def __iter__(self) -> CompletionIterator[T]:
        return self

    def __next__(self) -> Coroutine[Any, Any, T]:
        if self._to_yield <= 0:
            raise StopIteration
        self._to_yield -= 1
        return self._next_result()

    async def aclose(self) -> None:
        """Cancel what runs and wait until it has ended; what never started stays unstarted."""
        self._started, self._to_yield = True, 0
        for task in self._resident:
            task.cancel()
        await asyncio.gather(*self._resident, return_exceptions=True)
        self._resident.clear()
        self._drop_unstarted()

    async def _next_result(self) -> T:
        self._start()
        if not self._resident:
            raise RuntimeError("there are fewer rollouts than were announced")
        task = await self._finished.get()
        self._resident.discard(task)
        self._admit(1)
        return task.result()

    def _drop_unstarted(self) -> None:
        if isinstance(self._source, Generator):
            self._source.close()
            return
        for coroutine in self._source:
            coroutine.close()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._admit(self._bound)

    def _admit(self, count: int | None) -> None:
        while count is None or count > 0:
            coroutine = next(self._source, None)
            if coroutine is None:
                return
            task = asyncio.create_task(coroutine)
            self._resident.add(task)
            task.add_done_callback(self._note_finished)
            count = None if count is None else count - 1

    def _note_finished(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # taken note of: a caller who leaves early is not told about the rest at exit
        self._finished.put_nowait(task)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
