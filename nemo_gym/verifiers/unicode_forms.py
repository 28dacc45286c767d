"""Compatibility forms of text, in linear time whatever the text.

`unicodedata.normalize` sorts each run of combining marks in quadratic time and holds the interpreter meanwhile: a
megabyte of accents on one letter takes an hour. Real text has a handful of them on a letter.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

MOST_MARKS = 30
"""Combining marks in a row that are kept, as in Unicode's stream-safe text format (UAX #15)."""

_HARMLESS = 1_000


def nfkc(text: str) -> str:
    """The text in the form NFKC. In a long one that isn't yet, only the first 30 of a run of combining marks are
    kept."""
    if text.isascii() or unicodedata.is_normalized("NFKC", text):
        return text
    if len(text) > _HARMLESS:
        text = _long_runs().sub(lambda run: run[0][:MOST_MARKS], text)
    return unicodedata.normalize("NFKC", text)


@cache
def _long_runs() -> re.Pattern[str]:
    marks = "".join(re.escape(chr(code)) for code in range(0x300, 0x20000) if _is_mark(chr(code)))
    return re.compile(f"[{marks}]{{{MOST_MARKS + 1},}}+")


def _is_mark(character: str) -> bool:
    return all(unicodedata.combining(part) for part in unicodedata.normalize("NFKD", character))
