"""Noticing, while a collection runs, that the servers it needs have ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeAlias

from nemo_gym.rollouts.errors import ServersLostError

Watch: TypeAlias = Callable[[], None]
"""Raises when servers have ended. Called from a thread, every second or so."""

_SECONDS_BETWEEN_LOOKS = 1.0
_CONNECT_SECONDS = 2.0
_REFUSALS = 3


class HeadWatch:
    """A watch over servers that somebody else runs: they end with the head server they were started with.

    Only a port that refuses several times in a row says so: a head server that is slow to answer is merely busy.
    """

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._refused = 0

    def __call__(self) -> None:
        """Raises ServersLostError once the head server is gone."""
        self._refused = self._refused + 1 if self._refuses() else 0
        if self._refused >= _REFUSALS:
            host, port = self._address
            raise ServersLostError(f"The servers have ended: nothing listens at their head server's {host}:{port} now.")

    def _refuses(self) -> bool:
        try:
            socket.create_connection(self._address, timeout=_CONNECT_SECONDS).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False


_watch_of_collection: ContextVar[Watch | None] = ContextVar("nemo_gym_watch", default=None)


def watch_collection(watch: Watch | None) -> None:
    """From here on, in this task and those it starts, `outlive_servers` asks this watch."""
    _watch_of_collection.set(watch)


async def outlive_servers() -> None:
    """Return at once, unless the servers of the collection are gone: then wait to be ended with it.

    For rollouts that failed to reach anybody: whether they would have failed nobody knows, so no attempt is counted.
    """
    watch = _watch_of_collection.get()
    while watch is not None and await _is_lost(watch):
        await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)


async def _is_lost(watch: Watch) -> bool:
    for _ in range(_REFUSALS):
        if await _look(watch) is not None:
            return True
    return False


async def loss_during(task: asyncio.Future[Any], watch: Watch) -> Exception | None:
    """What the watch raised, at the latest when the task was done; None when it had nothing to say."""
    while not task.done():
        await asyncio.wait({task}, timeout=_SECONDS_BETWEEN_LOOKS)
        if (loss := await _look(watch)) is not None:
            return loss
    return None


async def _look(watch: Watch) -> Exception | None:
    try:
        await asyncio.to_thread(watch)
    except Exception as error:
        return error
    return None
