"""Numbers as people write them in short answers, with signs and units."""

from __future__ import annotations

import math
import re

POWERS = str.maketrans({character: f"^{number}" for number, character in enumerate("²³⁴⁵⁶⁷⁸⁹", 2)})
MATHS = POWERS | str.maketrans(
    {
        "°": r"^\circ",
        "√": r"\sqrt",
        "π": r"\pi",
        "﹣": "-",
        "﹢": "+",
        "﹦": "=",
        "﹤": "<",
        "﹥": ">",
        "，": ",",
        "：": ":",
    }
)
"""Signs of Unicode as LaTeX or ASCII writes them."""

_GROUPED = re.compile(r"(?<![\w,.])\d{1,3}(?:,\d{2,3})*,\d{3}(?!\d|,\d)")
_SIGN = re.compile(r"\\?[$£€%]")
_UNIT = re.compile(
    r"(?<=\d)(?:\s|~|\\[,;: ])*+(?:(?P<degree>\^?\\circ|\^?\{\\circ\}|degrees?)"
    r"|(?P<metric>cm|mm|km|kg|m)(?:\^?\{?(?P<power>[23])\}?)?)\Z"
)


def ungrouped(text: str) -> str:
    r"""`1,234,567` as `1234567`, also within a text, and `\%` as `%`. A comma that parts no thousands stays."""
    return _GROUPED.sub(lambda number: number[0].replace(",", ""), text).replace(r"\%", "%")


def without_unit(text: str) -> str:
    """The text without a currency, a percent sign and the unit at its end."""
    return _UNIT.sub("", _SIGN.sub("", text).strip()).strip()


def units_agree(one: str, other: str) -> bool:
    """Whether both have the same units and signs, or one has none."""
    own, others = _units(one), _units(other)
    return not own or not others or own == others


def plain_number(text: str) -> float | None:
    """What `float` reads, apart from dollar signs and escaped percent signs."""
    return _parsed(text.replace(r"\%", "").replace(r"\$", "").replace("$", ""))


def number(text: str) -> float | None:
    """The number of a text that is a number with signs, grouped digits and a unit."""
    return _parsed(without_unit(ungrouped(text.translate(MATHS))))


def closeness(value: float, wanted: float) -> float:
    """1 for the wanted number, 0 for one that is off by all of it; the square of what isn't off."""
    return max(0.0, 1.0 - abs(value - wanted) / max(abs(wanted), 1e-9)) ** 2


def _units(text: str) -> set[str]:
    text = text.translate(MATHS).strip()
    signs = {sign[0].removeprefix("\\") for sign in _SIGN.finditer(text)}
    if text.count("$") > 1:  # a formula
        signs.discard("$")
    unit = _UNIT.search(_SIGN.sub("", text).strip())
    if unit is None:
        return signs
    return signs | {"degree" if unit["degree"] else f"{unit['metric']}{unit['power'] or ''}"}


def _parsed(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    is_too_large = math.isinf(value) and any(map(str.isdigit, text))
    return None if is_too_large else value
