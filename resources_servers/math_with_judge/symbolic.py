r"""Comparing answers as mathematics, with the library math-verify: https://github.com/huggingface/Math-Verify.

Meant for a worker process: what it is given may take very long, or all memory.
"""

from __future__ import annotations

import importlib
import logging
import re
from typing import Any, NamedTuple

_INLINE = re.compile(r"\\\((.*)\\\)", re.DOTALL)
_DOLLARS = re.compile(r"\$(.*)\$", re.DOTALL)


class Checked(NamedTuple):
    """`score` is 0 or 1; `extracted` the answer that was compared, None where none was found."""

    score: float = 0.0
    extracted: str | None = None
    is_expected_read: bool = True


def run_math_verify(expected: str, generated: str, library: Any = None) -> Checked:
    r"""Whether a text gives the expected answer, by what the library takes for an answer in it.

    The expected one is LaTeX. Whatever the library raises is no match. `library` is the module `math_verify`.
    """
    library = library or importlib.import_module("math_verify")
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    try:
        return _checked(rf"\boxed{{{bare(expected)}}}", generated, library)
    except Exception:
        return Checked()


def bare(expected: str) -> str:
    r"""Without the `\(…\)` and then the `$…$` that stand around all of it."""
    for outer in (_INLINE, _DOLLARS):
        found = outer.fullmatch(expected.strip())
        expected = found[1].strip() if found else expected.strip()
    return expected


def _checked(gold: str, generated: str, library: Any) -> Checked:
    math_metric = importlib.import_module("math_verify.metric").math_metric
    latex, expression = library.LatexExtractionConfig(), library.ExprExtractionConfig()
    if not library.parse(gold, (latex,)):
        return Checked(is_expected_read=False)
    score, texts = math_metric((latex,), (expression, latex))([gold], [generated])
    golds, predictions = texts or ((), ())
    matching = (said for said in predictions if any(library.verify(gold, said) for gold in golds))
    return Checked(float(score), next(matching, predictions[0] if predictions else None))
