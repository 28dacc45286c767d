"""Handlers that are plain functions run in threads, so that one that takes long holds up nobody else."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 8
"""Few enough that the event loop, which competes with them for the interpreter, gets its turn within 50 ms."""


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="gym-handler")


def off_the_loop(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A coroutine function that does the same in a thread, with the caller's context; one stays as it is.

    It has the function's signature, annotations resolved.
    """
    if inspect.iscoroutinefunction(inspect.unwrap(function)):
        return function

    async def call(*args: Any, **kwargs: Any) -> Any:
        run = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        result = await asyncio.get_running_loop().run_in_executor(_threads(), run)
        return await result if inspect.isawaitable(result) else result

    functools.update_wrapper(call, function)
    vars(call).pop("__wrapped__")  # what looks through it would take it for a plain function
    vars(call)["__signature__"] = inspect.signature(function, eval_str=True)
    return call
