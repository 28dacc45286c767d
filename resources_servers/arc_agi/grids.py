r"""Grids of whole numbers in a text: `[[0, 1], [1, 0]]`, in a box or bare."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from nemo_gym.verifiers.extraction import flat_boxes

Grid: TypeAlias = list[list[int]]

_RUN = re.compile(r"[\d,\[\]\s]+")
_LIST_OF_LISTS = re.compile(r"\s*\[\s*\[[\d,\[\]\s]*\]\s*\]\s*")
_BRACKET = re.compile(r"[\[\]]")


def first_grid(text: str) -> Grid | None:
    """The first grid that can be read among those in boxes or, only where no box holds one, among the bare ones."""
    boxed = [content for content in flat_boxes(text) if _LIST_OF_LISTS.fullmatch(content)]
    grids = map(decoded, boxed or bare_lists(text))
    return next((grid for grid in grids if grid is not None), None)


def last_boxed_grid(text: str) -> Grid | None:
    """The grid that the last box holds."""
    boxed = flat_boxes(text)
    return decoded(boxed[-1]) if boxed else None


def bare_lists(text: str) -> Iterator[str]:
    """Every outermost list of lists of numbers in a text."""
    for run in _RUN.finditer(text):
        depth, start = 0, 0
        for bracket in _BRACKET.finditer(run[0]):
            if bracket[0] == "[":
                start = bracket.start() if depth == 0 else start
                depth += 1
            elif depth:
                depth -= 1
                content = run[0][start : bracket.end()]
                if depth == 0 and _LIST_OF_LISTS.fullmatch(content):
                    yield content


def decoded(text: str) -> Grid | None:
    """The grid a list is; None for what is no list of lists of numbers, has no row, or has nothing in the first."""
    try:
        grid = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(grid, list) or not grid or not all(map(_is_row, grid)):
        return None
    return grid if grid[0] else None


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and all(type(number) is int for number in row)
