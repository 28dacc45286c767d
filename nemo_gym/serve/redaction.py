"""Secrets of this process's config, masked in whatever it says: error bodies, logs, causes; and text made printable."""

from __future__ import annotations

import re
from collections.abc import Callable

_redact: Callable[[str], str] | None = None
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_MARGIN = 10_000
"""Characters, more than any secret has."""

_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


def install(redactor: Callable[[str], str] | None) -> None:
    """Mask texts with `redactor` from now on; None takes it away."""
    global _redact
    _redact = redactor


def redact(text: str) -> str:
    """`text` with the known secrets masked; unchanged before a redactor is installed."""
    return text if _redact is None else _redact(text)


def printable(text: str) -> str:
    """`text` that any file and terminal takes: control characters and halves of surrogate pairs become escapes."""
    return _UNPRINTABLE.sub(_escaped, text)


def encodable(text: str) -> str:
    """`text` with halves of surrogate pairs as escapes, everything else as it is."""
    return text if text.isascii() else _HALF_OF_A_PAIR.sub(_escaped, text)


def shown(text: str, limit: int | None = None) -> str:
    """What may be shown of a text from outside: redacted, printable, and cut at `limit` characters."""
    if limit is None:
        return printable(redact(text))
    safe = printable(beginning(text, limit + 1))
    return safe if len(safe) <= limit else f"{safe[: limit - 1]}…"


def beginning(text: str, limit: int) -> str:
    """The first `limit` characters of `text` with the known secrets masked. Little more of it is looked at, and since
    that may end within a secret, its end is left out."""
    whole = len(text) <= limit + _MARGIN
    return (redact(text) if whole else redact(text[: limit + _MARGIN])[:-_MARGIN])[:limit]


def _escaped(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape", errors="surrogatepass").decode("ascii")
