"""Scoring an answer with the library. Runs in a worker: a scorer may take for ever, or crash."""

from __future__ import annotations

import math
import re
from collections import Counter
from types import ModuleType
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.verifiers.extraction import between, first_box
from resources_servers.reasoning_gym.harmless import is_harmless

WRONG = {"countdown": 0.05, "puzzle24": 0.01}
"""What the library gives for a wrong formula, by the puzzles whose formulas have to use given numbers."""

GRIDS = ("arc_agi", "rearc")
UNREADABLE = "?"
"""Scored in place of an answer that must not be evaluated: no scorer can read it."""


class ScorerError(GymError):
    """The library couldn't score an answer."""


def extract_answer(text: str) -> str:
    r"""What the last `<answer>` holds, else the first `\boxed{}` up to a closing brace, else the whole text."""
    answer = between(text, "<answer>", "</answer>")
    if answer is None:
        answer = first_box(text) or text
    return answer.strip()


def score(library: ModuleType, task_name: str, answer: str, entry: dict[str, Any]) -> float:
    """What the answer to an entry (`question`, `answer`, `metadata`) is worth, 0 to 1. Raises ScorerError."""
    try:
        scorer = library.get_score_answer_fn(task_name)
        said = answer if is_harmless(answer, scorer) else UNREADABLE
        value = float(scorer(answer=said, entry=_as_made(task_name, entry)))
        if task_name in WRONG and not uses_numbers(answer, entry):
            value = min(value, WRONG[task_name])
    except Exception as error:
        raise ScorerError(f"an answer to {task_name} can't be scored: {error!r:.500}") from error
    if not math.isfinite(value):
        raise ScorerError(f"the scorer of {task_name} gave {value}")
    return value


def _as_made(task_name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry as the library made it: JSON has turned its grids of tuples, which it compares with, into lists."""
    output = entry["metadata"].get("output")
    if task_name not in GRIDS or not isinstance(output, list):
        return entry
    return {**entry, "metadata": {**entry["metadata"], "output": tuple(map(tuple, output))}}


def uses_numbers(formula: str, entry: dict[str, Any]) -> bool:
    """Whether a formula has just the numbers of the puzzle, each as often as there."""
    numbers = entry["metadata"].get("numbers")
    if not isinstance(numbers, list):
        return True
    used = Counter(number.lstrip("0") or "0" for number in re.findall(r"\b[0-9]+\b", formula))
    return used == Counter(map(str, numbers))
