"""Running plain functions off the event loop, in threads that nobody waits for when they don't end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

MOST_AT_ONCE = 64
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a function returns or raises. Unlike `asyncio.to_thread`, one that loops keeps no program from ending."""
    loop = asyncio.get_running_loop()
    async with _turns.setdefault(loop, asyncio.Semaphore(MOST_AT_ONCE)):
        outcome: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: Any, error: BaseException | None) -> None:
            if outcome.done():
                return
            if error is None:
                outcome.set_result(value)
            else:
                outcome.set_exception(error)

        def run() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = context.run(lambda: function(**arguments))
            except StopIteration as raised:  # futures can't hold it
                error = RuntimeError(f"StopIteration: {raised}").with_traceback(raised.__traceback__)
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, value, error)

        threading.Thread(target=run, name=f"environment {getattr(function, '__name__', '')}", daemon=True).start()
        return await outcome
