"""A span for each request a server answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from opentelemetry.trace import SpanKind, Status, StatusCode

from nemo_gym.telemetry.propagation import context_of
from nemo_gym.telemetry.spans import ROLLOUT_ID, SERVER_NAME, OpenTelemetrySpans

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_ROLLOUT_PREFIX = "/ng-rollout/"
_TOKEN_CAPTURE = "training-token-capture"


class ServerSpanMiddleware:
    """Records a SERVER span per HTTP request, below the span its `traceparent` header names."""

    def __init__(self, app: ASGIApp, *, spans: OpenTelemetrySpans, server_name: str) -> None:
        self.app = app
        self._spans = spans
        self._server_name = server_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        rollout_id, path = _split(scope["path"])
        attributes = {
            "http.request.method": scope["method"],
            "url.path": path,
            SERVER_NAME: self._server_name,
            ROLLOUT_ID: rollout_id,
        }
        name = f"{scope['method']} {path}"
        context = context_of(scope.get("headers", ()))
        with self._spans.start(name, attributes, kind=SpanKind.SERVER, context=context) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            await self.app(scope, receive, send_and_note)
            route = getattr(scope.get("route"), "path", None)
            if isinstance(route, str):
                span.set_attribute("http.route", route)
                span.update_name(f"{scope['method']} {route}")


def _split(path: str) -> tuple[str | None, str]:
    """(rollout id, path without the rollout's prefix), so that names of spans stay few."""
    if not path.startswith(_ROLLOUT_PREFIX):
        return None, path
    rollout_id, _, rest = path[len(_ROLLOUT_PREFIX) :].partition("/")
    return rollout_id or None, "/" + rest.removeprefix(f"{_TOKEN_CAPTURE}/")
