"""Suggestions for names that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def closest(value: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate most like `value`, never `value` itself."""
    others = {candidate.lower(): candidate for candidate in candidates if candidate != value}
    found = get_close_matches(value.lower(), others, n=1, cutoff=cutoff)
    return others[found[0]] if found else None


def did_you_mean(value: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """A sentence to append to a message: ` Did you mean `x`?`, or nothing."""
    suggestion = closest(value, candidates, cutoff=cutoff)
    return f" Did you mean `{suggestion}`?" if suggestion else ""


def unknown_keys(block_keys: Iterable[str], known_fields: Iterable[str]) -> list[tuple[str, str | None]]:
    """Keys of a server's block that its config class doesn't know, each with the field it probably means."""
    fields = set(known_fields)
    return [(key, closest(key, fields)) for key in block_keys if key not in fields]


def enumeration(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
