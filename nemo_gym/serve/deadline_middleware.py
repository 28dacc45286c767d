"""Handling of a request ends when the time its caller gave it is over."""

from __future__ import annotations

import asyncio
import math
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.serve.alarms import ring_after
from nemo_gym.serve.deadline import DEADLINE_HEADER, DeadlineExceededError, deadline, is_over
from nemo_gym.serve.guards import refuse

_HEADER = DEADLINE_HEADER.lower().encode("ascii")


class DeadlineMiddleware:
    """Ends the handling of a request when the time its caller gave it is over.

    What isn't answered by then raises DeadlineExceededError. Requests that name no deadline pass by.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _given(scope) if scope["type"] == "http" else None
        if given is None:
            await self.app(scope, receive, send)
            return
        seconds = _seconds(given)
        if seconds is None:
            await refuse(send, 400, f"The header {DEADLINE_HEADER} must hold a number of seconds.")
            return
        if seconds <= 0:
            raise DeadlineExceededError
        with deadline(seconds):
            await self._run(seconds, scope, receive, send)

    async def _run(self, seconds: float, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                alarm = ring_after(seconds, partial(limit.reschedule, 0.0))
                try:
                    await self.app(scope, receive, send)
                finally:
                    alarm.cancel()
        except TimeoutError as error:
            if isinstance(error, DeadlineExceededError) or not is_over():
                raise
            path = scope["path"]
            raise DeadlineExceededError(f"the rollout's deadline passed while {path} was being answered") from error


def _given(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == _HEADER:
            return bytes(value)
    return None


def _seconds(text: bytes) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
