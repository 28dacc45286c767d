"""Whether two short answers are the same, in one of the many ways to write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from nemo_gym.verifiers.unicode_forms import nfkc
from resources_servers.string_match.quantities import (
    MATHS,
    POWERS,
    closeness,
    number,
    plain_number,
    ungrouped,
    units_agree,
    without_unit,
)
from resources_servers.string_match.us_states import abbreviated

NEAR = 0.98
"""The reward of a number that is near, and how close it must be for that (`quantities.closeness`)."""

_BOLD = "**"
_MOST_CHARACTERS, _MOST_TIMES = 2_000, 10
_POWER_OF_NUMBER = re.compile(r"(?<=\d)[²³⁴⁵⁶⁷⁸⁹]")
_BRACE = re.compile(
    r"\\[{}]|(\\(?:boxed|text|textbf|textit|texttt|mathrm|mathbf|mathit|mathsf|mathbb|mathcal|emph|url))?\{|\}"
)
_DELIMITER = re.compile(r"\\[()\[\]$]|\$")
_SEPARATOR = re.compile(r"[,;]|and|or")
_SEPARATOR_WORD = re.compile(r"[,;]|\b(?:and|or)\b")
_LEFT_OF_LIST = 0.9


@dataclass(frozen=True)
class Strictness:
    """`exact_numbers`: a near number is none. `whole_list_words`: "and" and "or" part a list where they are words."""

    exact_numbers: bool = False
    whole_list_words: bool = False


def grade(answer: str, expected: str, strictness: Strictness | None = None) -> float:
    """1 for the same answer, `NEAR` for a number that is near the expected one or has another form, else 0.

    Case, outer quotes and end marks don't count, nor do LaTeX commands around text, grouped digits, and what parts a
    list. An answer many times as long as the expected one is another.
    """
    strictness = strictness or Strictness()
    if len(answer) > max(_MOST_CHARACTERS, _MOST_TIMES * len(expected)):
        return 0.0
    plain = tidied(answer), tidied(expected)
    if any(_is_same(form, *plain) for form in _forms(strictness)):
        return 1.0
    bare = without_latex(tidied(answer.translate(MATHS))), without_latex(tidied(expected.translate(MATHS)))
    if not (units_agree(*plain) and units_agree(*bare)):
        return 0.0
    if _is_same_number(*plain):
        return 1.0
    if _is_near(*plain, strictness):
        return NEAR
    if _is_same(without_unit, *bare):
        return 1.0
    return NEAR if _is_near(*bare, strictness) else 0.0


def tidied(text: str) -> str:
    """In NFKC and lower case, without outer quotes and end marks. A raised digit behind a digit stays a power."""
    text = _POWER_OF_NUMBER.sub(lambda power: power[0].translate(POWERS), text)
    text = _without_end(nfkc(text).lower())
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = _without_end(text[1:-1])
    return text


def without_bold(text: str) -> str:
    """Without the asterisks of bold type around all of it, and those that only its label ends (`**Answer:** 42`)."""
    text = text.strip()
    if text.count(_BOLD) % 2:
        text = text.removeprefix(_BOLD) if text.startswith(_BOLD) else text.removesuffix(_BOLD)
    text = text.strip()
    is_bold = len(text) > 2 * len(_BOLD) and text.startswith(_BOLD) and text.endswith(_BOLD) and text.count(_BOLD) == 2
    return text.strip("*").strip() if is_bold else text


def without_latex(text: str) -> str:
    r"""Without `\text{…}` and the like around what they hold, and without the delimiters of formulas."""
    cuts: list[tuple[int, int]] = []
    opened: list[tuple[int, int] | None] = []
    for brace in _BRACE.finditer(text):
        if brace[0].endswith("{") and brace[0] != r"\{":
            opened.append(brace.span() if brace[1] else None)
        elif brace[0] == "}" and opened and (opening := opened.pop()):
            cuts += [opening, brace.span()]
    return " ".join(_DELIMITER.sub("", _cut(text, cuts)).split())


def listed(text: str, strictness: Strictness) -> str:
    """The parts of a list with spaces between them; the text itself where "and" and "or" are too much of it."""
    if strictness.whole_list_words:
        return " ".join(_SEPARATOR_WORD.sub(" ", text).split())
    parted = _SEPARATOR.sub(" ", text)
    return " ".join((text if len(parted) < _LEFT_OF_LIST * len(text) else parted).split())


def _forms(strictness: Strictness) -> list[Callable[[str], str]]:
    def listed_states(text: str) -> str:
        if strictness.whole_list_words:  # Oregon's code is "or"
            return abbreviated(listed(text, strictness))
        return listed(abbreviated(text), strictness)

    return [str, ungrouped, without_latex, lambda text: listed(text, strictness), listed_states]


def _is_same(form: Callable[[str], str], answer: str, expected: str) -> bool:
    wanted = form(expected)
    return bool(wanted) and form(answer) == wanted


def _is_same_number(answer: str, expected: str) -> bool:
    value, wanted = plain_number(answer), plain_number(expected)
    return value is not None and value == wanted


def _is_near(answer: str, expected: str, strictness: Strictness) -> bool:
    value, wanted = number(answer), number(expected)
    if value is None or wanted is None:
        return False
    if strictness.exact_numbers:
        return math.isclose(value, wanted, rel_tol=1e-9)
    return closeness(value, wanted) > NEAR


def _without_end(text: str) -> str:
    text = text.strip()
    return text.rstrip(".!?").rstrip() or text


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    kept, begin = [], 0
    for start, end in sorted(spans):
        kept.append(text[begin:start])
        begin = end
    return "".join([*kept, text[begin:]])
