"""What a reward model says of two answers: a score for each, and which is better."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Literal, NamedTuple

from nemo_gym.errors import GymError
from nemo_gym.verifiers.extraction import fenced_blocks, json_objects

PairStrategy = Literal["circular", "all_pairs"]
TIE = 3.5
"""A ranking below it prefers the first answer, one above it the second."""

_LARGEST = 1e9
_NAMES = ("score_1", "score_2", "ranking")


class GenRMOutputParseError(GymError):
    """A reply of a reward model without scores."""


class Scores(NamedTuple):
    score_1: float
    score_2: float
    ranking: float


def generate_comparison_pairs(strategy: PairStrategy, count: int) -> list[tuple[int, int]]:
    """The pairs of so many responses: each with the next, the last with the first, or all of them.

    Raises ValueError for another strategy.
    """
    if strategy == "circular":
        return [(first, (first + 1) % count) for first in range(count)] if count > 1 else []
    if strategy == "all_pairs":
        return list(combinations(range(count), 2))
    raise ValueError(f"comparison strategy {strategy!r}: it must be circular or all_pairs")


def parse_genrm_output(
    text: str, default_score: float = 3.0, default_ranking: float = TIE, raise_on_fail: bool = False
) -> Scores:
    """The scores of a reply: those of the first JSON object with any in a block of ```json, else of the last anywhere.

    What an object doesn't say has its default. Without any, all have, or GenRMOutputParseError is raised.
    """
    found = _found(text, Scores(default_score, default_score, default_ranking))
    if found is not None:
        return found
    if raise_on_fail:
        raise GenRMOutputParseError(f"The reward model gave no scores: {text[:200]!r}")
    return Scores(default_score, default_score, default_ranking)


def _found(text: str, defaults: Scores) -> Scores | None:
    fenced = [content for block in fenced_blocks(text, "json") for content in json_objects(block)]
    read = (_scores(candidate, defaults) for candidate in (*fenced, *reversed(list(json_objects(text)))))
    return next((scores for scores in read if scores is not None), None)


def _scores(candidate: str, defaults: Scores) -> Scores | None:
    for said in _said(candidate):
        numbers = [_number(said.get(name, default)) for name, default in zip(_NAMES, defaults, strict=True)]
        if any(name in said for name in _NAMES) and None not in numbers:
            return Scores(*(number for number in numbers if number is not None))
    return None


def _said(candidate: str) -> Iterator[Mapping[str, Any]]:
    """The object, and what it calls `overall`."""
    try:
        value = json.loads(candidate)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        yield value
        if isinstance(value.get("overall"), dict):
            yield value["overall"]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) <= _LARGEST else None
