"""Work whose caller has hung up is given up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.schema.failure_kinds import TRANSPORT_PEER_DROP
from nemo_gym.serve.failures import CAUSE_HEADER, Cause

WATCH_AFTER_SECONDS = 0.05
"""Requests answered sooner are never watched: most are, and a watcher costs a task."""
PRINT_EVERY = 100


class ClientDisconnectCancellationMiddleware:
    """Cancels the handling of an HTTP request when its client disconnects before the response is complete.

    `num_cancelled` counts such requests. `is_debug` decides whether each one is printed, or every hundredth.
    """

    def __init__(self, app: ASGIApp, *, is_debug: Callable[[], bool] = lambda: False) -> None:
        self.app = app
        self.num_cancelled = 0
        self._is_debug = is_debug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not exchange.abandoned:
                if not exchange.has_started:
                    await _answer_as_stopped(scope, send)
                raise
        finally:
            exchange.close()
            if exchange.abandoned:
                self._note(scope)

    def _note(self, scope: Scope) -> None:
        self.num_cancelled += 1
        if self._is_debug() or self.num_cancelled % PRINT_EVERY == 0:
            print(f"499 {scope['method']} {scope['path']}: the client disconnected ({self.num_cancelled} so far)")


async def _answer_as_stopped(scope: Scope, send: Send) -> None:
    """What a caller gets whose request is given up because the server stops: to it the connection might have broken.

    So it is told the same, as a failure that may be tried again.
    """
    text = "The server was stopped before it could answer."
    address = ":".join(map(str, scope.get("server") or ("server",)))
    cause = Cause(address, "CancelledError", text, kind=TRANSPORT_PEER_DROP).header()
    content = orjson.dumps(text)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
        (CAUSE_HEADER.lower().encode("ascii"), cause),
    ]
    await send({"type": "http.response.start", "status": 502, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class _Exchange:
    """One request and its response, watched for a disconnect once it takes long."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.abandoned = False
        self.has_started = False
        self._interrupted = False
        self._receive = receive
        self._send = send
        self._complete = False
        self._handler = asyncio.current_task()
        self._reading = 0
        self._watcher: asyncio.Task[None] | None = None
        self._inbox: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(WATCH_AFTER_SECONDS, self._watch)

    async def receive(self) -> Message:
        if self._watcher is None:
            return await self._receive_directly()
        while not self._inbox:
            await self._arrived.wait()
        if self._inbox[0]["type"] == "http.disconnect":
            return self._inbox[0]
        message = self._inbox.popleft()
        if not self._inbox:
            self._arrived.clear()
        return message

    async def _receive_directly(self) -> Message:
        self._reading += 1
        try:
            message = await self._receive()
        finally:
            self._reading -= 1
        if message["type"] == "http.disconnect" and not self._complete:
            self.abandoned = True
        return message

    async def send(self, message: Message) -> None:
        if self.abandoned:
            return
        self.has_started = True
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete = True

    def close(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._interrupted and self._handler is not None:
            self._handler.uncancel()

    def _watch(self) -> None:
        if self._reading:
            # The handler itself is waiting for the client: it will see the disconnect.
            self._timer = self._loop.call_later(WATCH_AFTER_SECONDS, self._watch)
        else:
            self._watcher = self._loop.create_task(self._forward())

    async def _forward(self) -> None:
        while True:
            message = await self._receive()
            self._inbox.append(message)
            self._arrived.set()
            if message["type"] == "http.disconnect":
                self._abandon()
                return

    def _abandon(self) -> None:
        if not self._complete and self._handler is not None:
            self.abandoned = self._interrupted = True
            self._handler.cancel()
