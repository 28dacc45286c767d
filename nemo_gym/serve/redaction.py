"""Secrets of this process's config, masked in whatever it says: error bodies, logs, causes."""

from __future__ import annotations

from collections.abc import Callable

_redact: Callable[[str], str] | None = None


def install(redactor: Callable[[str], str] | None) -> None:
    """Mask texts with `redactor` from now on; None takes it away."""
    global _redact
    _redact = redactor


def redact(text: str) -> str:
    """`text` with the known secrets masked; unchanged before a redactor is installed."""
    return text if _redact is None else _redact(text)
