"""Every request to a model server that is part of a captured rollout, and what is owed when it ends."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from nemo_gym.config.keys import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT
from nemo_gym.token_id_capture.protocols import CaptureLedger, LineageResolver, TokenSink
from nemo_gym.token_id_capture.records import UNCOMMITTED_CALL_REASON
from nemo_gym.token_id_capture.registry import installed_token_sink
from nemo_gym.token_id_capture.sink import (
    CaptureContext,
    count_health,
    mark_incomplete,
    reset_token_sink,
    set_token_sink,
)

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

ROLLOUT_SCOPE_KEY = "nemo_gym.rollout_id"
TOKEN_CAPTURE_SCOPE_KEY = "nemo_gym.token_capture"
MODEL_CALL_SCOPE_KEY = "nemo_gym.model_call_id"

GENERATING_PATHS = frozenset({"/v1/chat/completions", "/v1/responses", "/v1/messages"})
_NOT_THERE = frozenset({404, 405})

_logger = logging.getLogger("nemo_gym.token_id_capture")


class TokenCaptureMiddleware:
    """Sets the capture context of requests under `/ng-rollout/<id>/training-token-capture`, prefix stripped by now.

    The sink is the configured one, else the one installed in this process, else the file store. A generating request
    that asked the model and left no record is a loss; so is an answer of any route not declared to run no model.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token_store: TokenSink | None = None,
        configured_sink: TokenSink | None = None,
        lineage_store: LineageResolver | CaptureLedger | None = None,
        delta_records: bool = False,
        external_staging: bool = False,
        token_capture_enabled: bool = False,
        non_generating_requests: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self.app = app
        self._token_store = token_store
        self._configured_sink = configured_sink
        self._lineage_store = lineage_store
        self._delta_records = delta_records
        self._external_staging = external_staging
        self._enabled = token_capture_enabled
        self._non_generating = non_generating_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._context_of(scope) if scope["type"] == "http" else None
        if context is None:
            await self.app(scope, receive, send)
            return
        scope[MODEL_CALL_SCOPE_KEY] = context.model_call_id
        call = _Call(context, scope, send, declared=(scope["method"], scope["path"]) in self._non_generating)
        token = set_token_sink(context)
        try:
            await self.app(scope, receive, call.send)
        finally:
            reset_token_sink(token)
            await call.note_loss()

    def _context_of(self, scope: Scope) -> CaptureContext | None:
        rollout_id = scope.get(ROLLOUT_SCOPE_KEY)
        if not rollout_id or not scope.get(TOKEN_CAPTURE_SCOPE_KEY):
            return None
        sink = None if self._external_staging else self._sink()
        if sink is None and not self._enabled:
            return None
        return CaptureContext(
            rollout_id=rollout_id,
            model_call_id=scope.get(MODEL_CALL_SCOPE_KEY) or uuid.uuid4().hex,
            token_sink=sink,
            lineage_store=self._lineage_store,
            delta_records=self._delta_records,
            external_staging=self._external_staging,
            admitted_at=time.time(),
        )

    def _sink(self) -> TokenSink | None:
        return self._configured_sink or installed_token_sink() or self._token_store


class _Call:
    """Sends a reply on: redirects stay inside the captured rollout, and a loss is noted before the client can go on."""

    def __init__(self, context: CaptureContext, scope: Scope, send: Send, *, declared: bool) -> None:
        self._context = context
        self._scope = scope
        self._send = send
        self._is_declared = declared
        self._generates = scope["path"] in GENERATING_PATHS and scope["method"] == "POST"
        self._status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if not self._generates:
                message = self._with_redirects(message)
            if not self._generates or message["status"] >= 400:
                await self.note_loss()
        await self._send(message)

    async def note_loss(self) -> None:
        """Note, once, that a call has left no record, if that is so."""
        if self._is_lost():
            await _note_loss(self._context)

    def _is_lost(self) -> bool:
        if self._context.committed:
            return False
        if self._generates:
            return self._context.generation_started or (self._status is not None and self._status < 400)
        return not self._is_declared and self._status not in _NOT_THERE

    def _with_redirects(self, message: Message) -> Message:
        if not 300 <= message["status"] < 400:
            return message
        return {**message, "headers": [self._redirected(*header) for header in message.get("headers", ())]}

    def _redirected(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        if name.lower() != b"location":
            return name, value
        origin, path = _split_origin(value.decode("latin-1"), _host_of(self._scope))
        stays = path is not None and not path.startswith(f"/{ROLLOUT_PATH_PREFIX}/")
        return (name, f"{origin}{_prefix_of(self._scope)}{path}".encode("latin-1")) if stays else (name, value)


def _split_origin(location: str, host: str) -> tuple[str, str | None]:
    """(origin, path) of a location on this server; a path of None for one elsewhere or a relative one."""
    if location.startswith("/") and not location.startswith("//"):
        return "", location
    for scheme in ("http://", "https://"):
        if host and location.startswith(f"{scheme}{host}/"):
            origin = f"{scheme}{host}"
            return origin, location[len(origin) :]
    return "", None


def _prefix_of(scope: Scope) -> str:
    return f"/{ROLLOUT_PATH_PREFIX}/{scope[ROLLOUT_SCOPE_KEY]}/{TOKEN_CAPTURE_PATH_SEGMENT}"


def _host_of(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")


async def _note_loss(context: CaptureContext) -> None:
    if not context.external_staging:
        await mark_incomplete(context)
        return
    if context.loss_is_noted or not isinstance(context.lineage_store, CaptureLedger):
        return
    context.loss_is_noted = True
    try:
        await context.lineage_store.record_failure(context.rollout_id, context.model_call_id, UNCOMMITTED_CALL_REASON)
    except Exception:
        count_health("unmarked_incomplete")
        _logger.exception("Rollout %s: a lost model call can't even be noted", context.rollout_id)
