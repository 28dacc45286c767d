"""Whether an answer is the expected one: printed lines, and values that functions return."""

import json
import math
from decimal import Decimal, DecimalException
from typing import Any

_CLOSE = Decimal("1e-6")
_ABSOLUTE, _RELATIVE = 1e-8, 1e-5
_SHOWN = 100


def lines_of(text: str) -> list[str]:
    """The lines that count, without the space around them."""
    return [line.strip() for line in text.strip().split("\n")]


def printed_difference(printed: str, expected: str) -> str | None:
    """What is wrong with a program's output, None for nothing."""
    own, wanted = lines_of(printed), lines_of(expected)
    if len(own) != len(wanted):
        return f"Wrong answer: mismatched output length, {len(own)} lines instead of {len(wanted)}"
    for number, (line, right) in enumerate(zip(own, wanted, strict=True)):
        if not (line == right or is_case_insensitive_verdict(line, right) or decimal_lines_match(line, right)):
            return f"Wrong answer at output_line_idx={number}: {_short(line)} != {_short(right)}"
    return None


def is_case_insensitive_verdict(line: str, expected: str) -> bool:
    """Whether both are the same of yes and no, in whatever case."""
    return line.lower() == expected.lower() and line.lower() in ("yes", "no")


def convert_line_to_decimals(line: str) -> tuple[bool, list[Decimal]]:
    """The numbers of a line, and whether there was nothing else in it."""
    try:
        return True, [Decimal(token) for token in line.split()]
    except DecimalException:
        return False, []


def decimal_lines_match(line: str, expected: str) -> bool:
    """Whether both hold the same numbers; those where one has a point or an exponent may differ by a millionth."""
    are_numbers, own = convert_line_to_decimals(line)
    are_wanted, wanted = convert_line_to_decimals(expected)
    if not (are_numbers and are_wanted and len(own) == len(wanted)):
        return False
    tokens = zip(line.split(), expected.split(), strict=True)
    pairs = zip(own, wanted, tokens, strict=True)
    return all(_same_number(a, b, approximate=any(map(_looks_floating, texts))) for a, b, texts in pairs)


def values_are_close(value: Any, expected: Any) -> bool:
    """Numbers of which one is a float and none a truth value, nearly equal; lists of such."""
    if isinstance(value, list) and isinstance(expected, list):
        same = len(value) == len(expected)
        return same and all(a == b or values_are_close(a, b) for a, b in zip(value, expected, strict=True))
    numbers = (value, expected)
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        return False
    if not any(isinstance(n, float) for n in numbers):
        return False
    try:
        distance = abs(value - expected)
        return bool(math.isfinite(distance) and distance <= _ABSOLUTE + _RELATIVE * abs(expected))
    except OverflowError:
        return False


def returned_difference(value: Any, expected: Any) -> str | None:
    """What is wrong with a returned JSON value, None for nothing."""
    if value == expected or json.dumps(value) == json.dumps(expected) or values_are_close(value, expected):
        return None
    return "Wrong Answer"


def _same_number(number: Decimal, expected: Decimal, *, approximate: bool) -> bool:
    try:
        if number == expected:
            return True
        if not (approximate and number.is_finite() and expected.is_finite()):
            return False
        return abs(number - expected) <= _CLOSE * max(abs(expected), Decimal(1))
    except DecimalException:
        return False


def _looks_floating(token: str) -> bool:
    return any(mark in token for mark in ".eE")


def _short(line: str) -> str:
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
