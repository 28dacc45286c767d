"""Spans at the places where Gym can be traced.

Nothing is recorded until `install` is given a tracer; until then every call below is a constant. Callers ask
`is_span_group_enabled` first wherever building the attributes would cost something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from nemo_gym.telemetry.settings import SPAN_GROUPS

__all__ = [
    "NEMO_LENS_AVAILABLE",
    "SPAN_GROUPS",
    "SpanSource",
    "install",
    "is_span_group_enabled",
    "managed_span",
    "safe_set_span_attributes",
    "span_cm",
    "trace_fn",
]

NEMO_LENS_AVAILABLE = False
"""Kept for callers of 0.7, whose tracing came from a package of that name."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Wrap = Callable[[Any, str], Any]


class SpanSource(Protocol):
    """What records spans once telemetry is on."""

    def open(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """A context manager that is the span."""

    def wrap(self, function: _Function, name: str) -> _Function:
        """The function, sync or async, with a span around each call."""


_source: SpanSource | None = None
_enabled: frozenset[str] = frozenset()
_measure: _Wrap | None = None
_NO_SPAN: AbstractContextManager[None] = nullcontext()


def install(source: SpanSource | None, groups: Iterable[str] = (), measure: _Wrap | None = None) -> None:
    """Record the spans of `groups` with `source` from now on; None turns everything off.

    `measure` is given every traced function with the name of its span, whatever the groups, to time its calls.
    """
    global _source, _enabled, _measure
    _source = source
    _enabled = frozenset(groups) if source is not None else frozenset()
    _measure = measure


def is_span_group_enabled(group: str) -> bool:
    """Whether spans of this group are recorded."""
    return group in _enabled


def managed_span(group: str, name: str, tracer: object = None, **attributes: Any) -> AbstractContextManager[Any]:
    """A span as a context manager that yields it, or None when its group is off."""
    if _source is None or group not in _enabled:
        return _NO_SPAN
    return _source.open(name, attributes)


span_cm = managed_span


def trace_fn(group: str, name: str, tracer: object = None) -> Callable[[_Function], _Function]:
    """A decorator that traces every call while the group is on at decoration time, and else changes nothing."""

    def decorate(function: _Function) -> _Function:
        traced = function if _source is None or group not in _enabled else _source.wrap(function, name)
        return traced if _measure is None else _measure(traced, name)

    return decorate


def safe_set_span_attributes(
    span: Any, attributes: Mapping[str, Any], redact_keys: Iterable[str] | None = None
) -> None:
    """Set attributes on a span (or on None), those in `redact_keys` masked; never raises."""
    if span is None:
        return
    hidden = frozenset(redact_keys or ())
    for key, value in attributes.items():
        try:
            span.set_attribute(key, "****" if key in hidden else value)
        except Exception:
            continue
