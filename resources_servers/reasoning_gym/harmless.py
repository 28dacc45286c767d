"""Which answers may be handed to a scorer that evaluates them as Python.

Some of the library's scorers call `eval`, or SymPy's parser, which does: an answer could then run anything, and change
what the scorer says. Let through is what no evaluation can do more with than compute a value.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from typing import Any

_EVALUATES = re.compile(r"(?<![\w.])(?:eval|exec)\(")
_PARSES_MATHS = re.compile(r"\bsympy\b[\s\S]*\b(?:parse_expr|sympify)\(")
_DATA = (
    ast.Expression,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.Name,
    ast.Load,
    ast.UnaryOp,
    ast.USub,
)
"""What there may be in an expression that computes nothing."""

_MATHS = re.compile(r"[A-Za-z0-9\s+\-*/^%().,=!|]*")
_CALL = re.compile(r"(?<![A-Za-z0-9])([A-Za-z][A-Za-z0-9]*+)\s*\(|(?<!\s)\s*+\(")
_ATTRIBUTE = re.compile(r"[A-Za-z)]\s*\.|\.\s*[A-Za-z]")
_FUNCTIONS = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln"),
        *("sqrt", "cbrt", "abs", "Abs", "sign", "floor", "ceiling", "factorial", "gcd", "lcm", "Mod", "pow", "Pow"),
        *("Rational", "Integer", "Float"),
    )
)


def is_harmless(answer: str, scorer: Any) -> bool:
    """Whether a scorer can be given the answer, since it doesn't evaluate it or may well do so.

    `scorer` is a function or method; one whose source can't be read counts as one that evaluates.
    """
    source = _source(scorer)
    parses_maths = source is None or _PARSES_MATHS.search(source) is not None
    if not parses_maths and source is not None and not _EVALUATES.search(source):
        return True
    expression = parsed(answer)
    if expression is None:
        return not parses_maths or is_plain_maths(answer)
    return is_plain_maths(answer) or all(isinstance(node, _DATA) for node in ast.walk(expression))


def parsed(answer: str) -> ast.AST | None:
    """The expression that Python would evaluate; None where it is none, or none that Python can hold."""
    try:
        return ast.parse(answer.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def is_plain_maths(answer: str) -> bool:
    """Numbers, names, operators and brackets, where nothing but common functions is called."""
    if not _MATHS.fullmatch(answer) or _ATTRIBUTE.search(answer):
        return False
    return all(_may_be_called(answer, call) for call in _CALL.finditer(answer))


def _may_be_called(answer: str, call: re.Match[str]) -> bool:
    if call[1] is not None:
        return call[1] in _FUNCTIONS
    before = answer[call.start() - 1] if call.start() else ""
    return before != ")" and not before.isalnum()


def _source(scorer: Any) -> str | None:
    module = sys.modules.get(getattr(scorer, "__module__", ""))
    try:
        return inspect.getsource(module) if module is not None else None
    except (OSError, TypeError):
        return None
