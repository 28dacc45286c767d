"""Spans on OpenTelemetry's tracer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

SERVER_NAME = "nemo.gym.server.name"
ROLLOUT_ID = "nemo.gym.rollout.id"

_REQUEST_METHOD = "http.request.method"

_Function = TypeVar("_Function", bound=Callable[..., Any])


class OpenTelemetrySpans:
    """Records spans with a tracer. `server_name` is that of functions which belong to no server object."""

    def __init__(self, tracer: Tracer, server_name: str, rollout_id: Callable[[], str | None]) -> None:
        self._tracer = tracer
        self._server_name = server_name
        self._rollout_id = rollout_id

    def open(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[Span]:
        """A span in the current context. One that has a request method is that of a request we send."""
        kind = SpanKind.CLIENT if _REQUEST_METHOD in attributes else SpanKind.INTERNAL
        return self.start(name, attributes, kind=kind)

    @contextmanager
    def start(
        self, name: str, attributes: Mapping[str, Any], *, kind: SpanKind, context: Context | None = None
    ) -> Iterator[Span]:
        """A span that fails with what is raised in it. Of errors only the kind is told: their texts hold secrets."""
        told = {key: value for key, value in attributes.items() if value is not None}
        with self._tracer.start_as_current_span(
            name, context, kind, told, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def wrap(self, function: _Function, name: str) -> _Function:
        """The function, sync or async, with a span around each call that names its server and the rollout."""
        server = _server_name_of(function) or self._server_name

        def span() -> AbstractContextManager[Span]:
            return self.open(name, {SERVER_NAME: server, ROLLOUT_ID: self._rollout_id()})

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced_async(*args: Any, **kwargs: Any) -> Any:
                with span():
                    return await function(*args, **kwargs)

            return traced_async  # type: ignore[return-value]

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with span():
                return function(*args, **kwargs)

        return traced  # type: ignore[return-value]


def _server_name_of(function: Any) -> str | None:
    """The instance name of the server whose method this is."""
    name = getattr(getattr(getattr(function, "__self__", None), "config", None), "name", None)
    return name if isinstance(name, str) and name else None
