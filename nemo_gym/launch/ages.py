"""Spans of time, as people say them."""

from __future__ import annotations


def shown_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `5 min 12 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
