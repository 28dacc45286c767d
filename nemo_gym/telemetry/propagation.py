"""The trace a request belongs to, in its `traceparent` header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TRACEPARENT = "traceparent"


def with_traceparent(headers: Any) -> Any:
    """A copy of request headers that names the current span; the headers themselves when there is none."""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    if not carrier:
        return headers
    copy: Any
    if headers is None:
        copy = {}
    elif isinstance(headers, Mapping):
        copy = headers.copy() if hasattr(headers, "copy") else dict(headers)
    else:
        copy = dict(headers)
    for name, value in carrier.items():
        copy[name] = value
    return copy


def context_of(headers: Iterable[tuple[bytes, bytes]]) -> Any:
    """The context a request's headers name; None where they name none, so that the current one counts."""
    carrier = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    return _propagator().extract(carrier) if TRACEPARENT in carrier else None


def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
