"""Tables of plain text that fit a terminal: columns that don't are left out, the least important first."""

from collections.abc import Sequence
from dataclasses import dataclass

_GAP = "  "


@dataclass(frozen=True)
class Column:
    """`rank` 0 is never left out, the highest first. Numbers are aligned to the right."""

    title: str
    rank: int = 0
    is_number: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A line of titles and one for each row, none longer than `width` characters."""
    cells = [[column.title for column in columns], *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    kept = _fitting(columns, widths, width)
    return [
        _GAP.join(row[i].rjust(widths[i]) if columns[i].is_number else row[i].ljust(widths[i]) for i in kept).rstrip()[
            :width
        ]
        for row in cells
    ]


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor or change its colours."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "�" for char in text)


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    kept = list(range(len(columns)))
    while sum(widths[i] for i in kept) + len(_GAP) * (len(kept) - 1) > width:
        removable = [i for i in kept if columns[i].rank]
        if not removable:
            break
        kept.remove(max(removable, key=lambda i: (columns[i].rank, i)))
    return kept
