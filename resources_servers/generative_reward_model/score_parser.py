"""Reading the scores that a reward model writes: one JSON object, somewhere in its reply."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym.verifiers.extraction import json_objects

_BACKSLASH = re.compile(r"\\(?:([\"\\/bfnrt]|u[0-9a-fA-F]{4}))?")


@dataclass(frozen=True)
class Scores:
    """Of two answers, and which is better: a ranking below 3.5 for the first."""

    score_1: float
    score_2: float
    ranking: float


@dataclass(frozen=True)
class Evaluation:
    """`rubrics` are the scores by each rubric, with its id."""

    overall: Scores
    rubrics: tuple[tuple[int, Scores], ...]


def extract_scores(text: str) -> Evaluation | None:
    """What a reply says; None unless exactly one JSON object is in it, with `overall` scores and `rubric_evaluations`.

    Numbers may be written as text; what isn't finite is none.
    """
    decoded = (_decoded(candidate) for candidate in json_objects(text))
    objects = [each for each in decoded if each is not None]
    return _evaluation(objects[0]) if len(objects) == 1 else None


def _evaluation(value: Mapping[str, Any]) -> Evaluation | None:
    try:
        rubrics = value["rubric_evaluations"]
        if not isinstance(rubrics, list) or not rubrics:
            return None
        read = tuple((int(rubric["rubric_id"]), _scores(rubric)) for rubric in rubrics)
        return Evaluation(_scores(value["overall"]), read)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _scores(value: Mapping[str, Any]) -> Scores:
    numbers = [float(value[name]) for name in ("score_1", "score_2", "ranking")]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(numbers)
    return Scores(*numbers)


def _decoded(text: str) -> dict[str, Any] | None:
    """The object, also where backslashes before other characters should have been doubled."""
    for candidate in (text, _BACKSLASH.sub(_escaped, text)):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[1] else "\\\\"
