"""Tables of words: as wide as their content, and on a terminal as wide as that, the last column wrapped."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

from nemo_gym.cli.text_table import printable

_GAP = "  "
_LEAST = 24
"""Characters of the last column below which wrapping makes nothing readable."""


def print_listing(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a title, the columns' names and a row a line, or several lines where the last cell is wrapped."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join([title, "", *listing_lines(columns, rows, width)]))


def listing_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The lines of a table; without a width nothing is wrapped."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    indent = sum(widths[:-1]) + len(_GAP) * (len(columns) - 1)
    last = widths[-1] if width is None else max(_LEAST, min(widths[-1], width - indent))
    rules = ["-" * size for size in [*widths[:-1], last]]
    return [line for row in [list(columns), rules, *cells] for line in _lines(row, widths, last, indent)]


def _lines(row: Sequence[str], widths: Sequence[int], last: int, indent: int) -> list[str]:
    head = "".join(cell.ljust(size) + _GAP for cell, size in zip(row[:-1], widths[:-1], strict=True))
    parts = textwrap.wrap(row[-1], last) or [""]
    return [(head + parts[0]).rstrip(), *(" " * indent + part for part in parts[1:])]
