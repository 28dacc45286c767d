"""Calls that name an idempotency key are made once: asked for again, they are answered as the first time.

So a client whose connection broke can ask again without having the work done twice. Within the time a key is remembered
a call is never made again: where its answer had to be dropped, the repetition is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.serve.bodies import read_body
from nemo_gym.serve.charges import Charges
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from nemo_gym.serve.guards import refuse
from nemo_gym.serve.in_flight import rollout_in
from nemo_gym.serve.retries import IDEMPOTENCY_HEADER, REPEATED_HEADER, Fault

REPLAYED_HEADER = "X-NeMo-Gym-Replayed"
"""Marks an answer that was given before."""

REMEMBERED_SECONDS = 300.0
"""More than any client of ours goes on trying."""
REMEMBERED_CALLS = 100_000
KEPT_BYTES = 64 << 20
GRACE_SECONDS = 5.0
"""How long a call goes on whose callers are all gone: one of them may be about to ask again."""

_KEY_HEADER = IDEMPOTENCY_HEADER.lower().encode("ascii")
_REPEATED = REPEATED_HEADER.lower().encode("ascii")
_PER_ANSWER_BYTES = 1024
_CONFLICT = 409
_LOST_WITH_PROCESS = "Its process ended while this call was under way: what it had done, and its answer, are lost."

_Identity: TypeAlias = tuple[bytes, str, bytes]
LOG = logging.getLogger("nemo_gym.server_utils")


@dataclass(eq=False)
class _Call:
    """One call: under way, answered, or with an answer that is no longer there and why."""

    body_digest: bytes
    finished: asyncio.Future[None]
    answer: list[Message] = field(default_factory=list)
    gone: str | None = None
    callers: int = 0
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        return _PER_ANSWER_BYTES + sum(len(message.get("body", b"")) for message in self.answer)

    def drop_answer(self, why: str) -> None:
        self.answer, self.gone = [], why


class _Book:
    """The calls of a server, bounded in age, number and bytes of kept answers."""

    def __init__(self, seconds: float, calls: int, kept_bytes: int, clock: Callable[[], float]) -> None:
        self._calls: dict[_Identity, _Call] = {}
        self._ended: deque[tuple[float, _Identity]] = deque()
        self._kept: deque[_Identity] = deque()
        self._bytes = 0
        self._limits = (seconds, calls, kept_bytes)
        self._clock = clock

    def find(self, identity: _Identity) -> _Call | None:
        self._forget_old()
        return self._calls.get(identity)

    def add(self, identity: _Identity, call: _Call) -> None:
        self._calls[identity] = call

    def ended(self, identity: _Identity) -> None:
        """Note that a call has its answer; may drop the answers of others."""
        self._ended.append((self._clock(), identity))
        self._kept.append(identity)
        self._bytes += self._calls[identity].size
        while self._bytes > self._limits[2] and len(self._kept) > 1:
            self._unkeep("was answered before, and the answer is no longer kept")
        self._forget_old()

    def _unkeep(self, why: str) -> None:
        call = self._calls[self._kept.popleft()]
        self._bytes -= call.size
        if call.gone is None:
            call.drop_answer(why)

    def _forget_old(self) -> None:
        oldest = self._clock() - self._limits[0]
        while self._ended and (self._ended[0][0] <= oldest or len(self._ended) > self._limits[1]):
            _, identity = self._ended.popleft()
            if self._kept and self._kept[0] == identity:
                self._unkeep("was answered before, and the answer is no longer kept")
            del self._calls[identity]


class IdempotencyMiddleware:
    """Makes each call with a key once, however often it is asked for; calls without a key pass by.

    The same key with another path or cookie is another call. With another body it is a mistake, answered with 422.
    A call goes on for `grace_seconds` after its last caller has hung up. A process that took the place of one that
    died (`is_successor`) doesn't make the calls that were made there: they are refused as dropped, so that their
    rollout is run again, and counted. Those for a rollout that got that process stuck are refused as its failure.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        remembered_seconds: float = REMEMBERED_SECONDS,
        remembered_calls: int = REMEMBERED_CALLS,
        kept_bytes: int = KEPT_BYTES,
        grace_seconds: float = GRACE_SECONDS,
        is_successor: bool = False,
        server: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self._is_successor = is_successor
        self._charges = Charges()
        self._server = server
        self._book = _Book(remembered_seconds, remembered_calls, kept_bytes, clock)
        self._grace_seconds = grace_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = _identity(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if identity is None:
            await self.app(scope, receive, send)
            return
        if self._is_successor:
            charge = self._charges.of(rollout_in(scope), is_repeated=_is_repeated(scope))
            if charge is not None:
                await _refuse(send, charge.message, charge.cause())
                return
        try:
            body = await read_body(receive)
        except ClientDisconnect:
            return
        known = self._book.find(identity)
        digest = hashlib.sha256(body).digest()
        if known is not None and known.body_digest != digest:
            await refuse(send, 422, f"The {IDEMPOTENCY_HEADER} of this request was used for another one.")
            return
        if known is None and self._is_successor and _is_repeated(scope):
            await _refuse_lost(send, self._server, _LOST_WITH_PROCESS)
            return
        call = known or self._start(identity, scope, body, digest)
        await self._finished(call)
        await _answer(call, send, self._server, is_replay=known is not None)

    def _start(self, identity: _Identity, scope: Scope, body: bytes, digest: bytes) -> _Call:
        call = _Call(digest, asyncio.get_running_loop().create_future())
        self._book.add(identity, call)
        call.task = asyncio.create_task(self._make(identity, call, scope, body))
        return call

    async def _make(self, identity: _Identity, call: _Call, scope: Scope, body: bytes) -> None:
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if unread:
                return unread.pop()
            await asyncio.wait([call.finished])
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            call.answer.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._end(identity, call)

        why = "was begun before and given up, unanswered, when nobody waited for it"
        try:
            await self.app(scope, receive, send)
        except Exception:
            why = "was made before and failed without an answer"
            LOG.exception("%s failed without an answer", scope["path"])
        finally:
            if not call.finished.done():
                call.drop_answer(why)
                self._end(identity, call)

    def _end(self, identity: _Identity, call: _Call) -> None:
        if not call.finished.done():
            call.finished.set_result(None)
            self._book.ended(identity)

    async def _finished(self, call: _Call) -> None:
        call.callers += 1
        if call.timer is not None:
            call.timer.cancel()
        try:
            await asyncio.shield(call.finished)
        finally:
            call.callers -= 1
            if not call.callers and not call.finished.done() and call.task is not None:
                call.timer = asyncio.get_running_loop().call_later(self._grace_seconds, call.task.cancel)


def _identity(scope: Scope) -> _Identity | None:
    key, cookie = None, b""
    for name, value in scope["headers"]:
        if name == _KEY_HEADER:
            key = bytes(value)
        elif name == b"cookie":
            cookie = bytes(value)
    return None if key is None else (key, scope["path"], cookie)


def _is_repeated(scope: Scope) -> bool:
    return any(name == _REPEATED for name, _ in scope["headers"])


async def _refuse_lost(send: Send, server: str, text: str) -> None:
    await _refuse(send, text, Cause(server, "RepeatedCallError", text, _CONFLICT, Fault.DROPPED.value))


async def _refuse(send: Send, text: str, cause: Cause) -> None:
    await refuse(send, _CONFLICT, text, [(CAUSE_HEADER.lower().encode("ascii"), cause.header())])


async def _answer(call: _Call, send: Send, server: str, *, is_replay: bool) -> None:
    if call.gone is not None:
        await _refuse_lost(send, server, f"The answer to this call is lost: it {call.gone}.")
        return
    for message in call.answer:
        if is_replay and message["type"] == "http.response.start":
            marker = (REPLAYED_HEADER.lower().encode("ascii"), b"1")
            message = {**message, "headers": [*message.get("headers", ()), marker]}
        await send(message)
