"""A figure beside its floor, as a row of the printed table and of the JSON report."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.machine import load


@dataclass(frozen=True)
class Figure:
    """One measured number; `floor` is the same work done by the least code that could do it, in the same unit."""

    case: str
    what: str
    value: float
    unit: str
    floor: float | None = None
    budget: str = ""
    load: float = field(default_factory=load)

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None


def median(values: list[float]) -> float:
    return statistics.median(values)


def print_table(figures: list[Figure], facts: dict[str, Any]) -> None:
    table = Table(title=" · ".join(f"{key} {value}" for key, value in facts.items()), title_justify="left")
    for column in ("case", "what", "value", "floor", "ratio", "budget", "load"):
        table.add_column(column, justify="left" if column in {"case", "what", "budget"} else "right")
    for figure in figures:
        table.add_row(
            figure.case,
            figure.what,
            f"{figure.value:.3g} {figure.unit}",
            f"{figure.floor:.3g}" if figure.floor is not None else "",
            f"{figure.ratio:.2f}" if figure.ratio is not None else "",
            figure.budget,
            f"{figure.load:.2f}",
        )
    Console(width=140).print(table)


def write(figures: list[Figure], facts: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(figure) | {"ratio": figure.ratio} for figure in figures]
    path.write_text(json.dumps({"machine": facts, "figures": rows}, indent=2) + "\n")
