"""How much markup and decoration an answer has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from resources_servers.genrm_compare.conversations import extract_from_response_obj

_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ELEMENTS = {
    "headers": re.compile(r"^[ \t]{0,3}#{1,6}[ \t]", re.MULTILINE),
    "list_items": re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]", re.MULTILINE),
    "bold": re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__"),
    "emoji": re.compile("[\u2600-\u27bf\u2b50\u2b55\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"),
}


def count_style_elements(text: str) -> dict[str, int]:
    """How many headers, list items, bold passages and emoji a text has outside of code blocks."""
    prose = _CODE.sub("", text)
    return {name: sum(1 for _ in pattern.finditer(prose)) for name, pattern in _ELEMENTS.items()}


def compute_style_density(text: str) -> float:
    """Such elements for each character outside of code blocks; 0 where there is none."""
    length = len(_CODE.sub("", text))
    return sum(count_style_elements(text).values()) / length if length else 0.0


def apply_style_penalties(scores: Sequence[float], responses: Sequence[Any], coefficient: float) -> list[float]:
    """The scores, with more for plain answers and less for decorated ones; the mean stays."""
    weights = _compute_style_density_weights([extract_from_response_obj(response)[1] for response in responses])
    return [score + coefficient * weight for score, weight in zip(scores, weights, strict=True)]


def _compute_style_density_weights(answers: Sequence[str]) -> list[float]:
    return centred_weights([compute_style_density(answer) for answer in answers])


def centred_weights(amounts: Sequence[float]) -> list[float]:
    """1 for the least amount, 0 for the most, and in between by their share; less the mean of all. 0 where all are the
    same."""
    least, most = min(amounts, default=0.0), max(amounts, default=0.0)
    if most == least:
        return [0.0] * len(amounts)
    weights = [1.0 - (amount - least) / (most - least) for amount in amounts]
    mean = fmean(weights)
    return [weight - mean for weight in weights]
