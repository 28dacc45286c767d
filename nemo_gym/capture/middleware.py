"""The middleware of a model server that records the calls made for a rollout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from nemo_gym.capture.dialects import DIALECT_OF_PATH, Dialect
from nemo_gym.capture.exchange import MAX_BODY_BYTES, ObservedCall
from nemo_gym.capture.store import CaptureStore

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

ROLLOUT_SCOPE_KEY = "nemo_gym.rollout_id"
MODEL_CALL_SCOPE_KEY = "nemo_gym.model_call_id"
EXECUTION_STATE_KEY = "nemo_gym_model_execution"

WRITERS = 8
"""Threads that write captures, at most: apart from those that verifiers use."""

_logger = logging.getLogger(__name__)


class ModelCallMiddleware:
    """Records requests to the three APIs whose scope names a rollout, the prefix in their path stripped by now.

    What ends an answer is sent only once the record is on disk. A record that can't be written marks the rollout's
    capture incomplete; the call itself goes on.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        store: CaptureStore | None,
        model_server_name: str | None,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.app = app
        self._max_body_bytes = max_body_bytes
        self._store = store
        self._model_server_name = model_server_name
        self._writers: ThreadPoolExecutor | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rollout_id = scope.get(ROLLOUT_SCOPE_KEY)
        dialect = DIALECT_OF_PATH.get(scope["path"]) if scope["type"] == "http" else None
        if self._store is None or not rollout_id or dialect is None:
            await self.app(scope, receive, send)
            return
        await self._observe(self._store, str(rollout_id), dialect, scope, receive, send)

    async def _observe(
        self, store: CaptureStore, rollout_id: str, dialect: Dialect, scope: Scope, receive: Receive, send: Send
    ) -> None:
        call = ObservedCall(
            dialect, self._model_server_name, _only_header(scope, b"x-session-id"), self._max_body_bytes
        )
        scope[MODEL_CALL_SCOPE_KEY] = call.model_call_id
        state = scope.setdefault("state", {})

        async def record() -> None:
            call.completed()
            execution = state.get(EXECUTION_STATE_KEY)
            await self._record(store, rollout_id, call, execution if isinstance(execution, Mapping) else {})

        answer = _Answer(call, send, record)

        async def receive_and_keep() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                call.asked(message.get("body", b""))
            return message

        try:
            await self.app(scope, receive_and_keep, answer.send)
        except BaseException as error:
            call.error = error
            raise
        finally:
            await answer.finish()

    async def _record(
        self, store: CaptureStore, rollout_id: str, call: ObservedCall, execution: Mapping[str, Any]
    ) -> None:
        if self._writers is None:
            self._writers = ThreadPoolExecutor(WRITERS, "nemo-gym-capture")
        execution = dict(execution)
        written = asyncio.get_running_loop().run_in_executor(
            self._writers, lambda: _write(store, rollout_id, call, execution)
        )
        await asyncio.shield(written)  # a client that leaves doesn't unmake the record of its call


class _Answer:
    """Sends an answer on, keeping back from its end on what must not arrive before the record is on disk."""

    def __init__(self, call: ObservedCall, send: Send, record: Callable[[], Awaitable[None]]) -> None:
        self._call = call
        self._send = send
        self._record = record
        self._held: list[Message] = []
        self._is_recorded = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._call.status_code = message["status"]
            self._call.is_stream = _is_event_stream(message)
        elif message["type"] == "http.response.body":
            self._call.answered(bytes(message.get("body", b"")))
            is_last = not message.get("more_body", False)
            if is_last or self._call.has_ended:
                self._held.append(message)
                if is_last:
                    await self.finish()
                return
        await self._send(message)

    async def finish(self) -> None:
        """Record the call unless that is done, and send what was kept back."""
        if not self._is_recorded:
            self._is_recorded = True
            await self._record()
        held, self._held = self._held, []
        for message in held:
            await self._send(message)


def _write(store: CaptureStore, rollout_id: str, call: ObservedCall, execution: Mapping[str, Any]) -> None:
    try:
        store.record(rollout_id, call.exchange(execution))
    except Exception:
        _logger.exception("A model call of rollout %s could not be recorded", rollout_id)
        try:
            store.mark_incomplete(rollout_id)
        except Exception:
            _logger.exception("Rollout %s could not even be marked as incompletely captured", rollout_id)


def _is_event_stream(start: Message) -> bool:
    headers = start.get("headers", ())
    return any(
        name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in headers
    )


def _only_header(scope: Scope, wanted: bytes) -> str | None:
    """A header's text if it is given exactly once."""
    values = [value for name, value in scope.get("headers", ()) if name.lower() == wanted]
    return values[0].decode("latin-1").strip() or None if len(values) == 1 else None
