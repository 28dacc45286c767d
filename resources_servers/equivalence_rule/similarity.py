"""How much of a text is in another one, in the same order. Only the standard library: workers import it."""

from __future__ import annotations

from difflib import SequenceMatcher

PREFIX = 10
"""Characters at the beginning that the weighted similarity counts a second time."""

_WHOLE, _BEGINNING = 0.85, 0.15


def normalized(text: str) -> str:
    """In lower case, stripped, with single spaces."""
    return " ".join(text.lower().split())


def similarity(response: str, answer: str) -> float:
    """`SequenceMatcher`'s ratio, 0 to 1. The order matters: what is frequent in a long `answer` counts as junk."""
    return SequenceMatcher(None, response, answer).ratio()


def weighted_similarity(response: str, answer: str) -> float:
    """The same, but 15 % of it is that of the first ten characters."""
    beginning = answer[:PREFIX]
    return _WHOLE * similarity(response, answer) + _BEGINNING * similarity(response[: len(beginning)], beginning)
