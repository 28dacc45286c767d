"""Named places where a process under test stops until the harness lets it go on.

A point is two files in a folder both sides know: `<name>.hold`, whose content is how many arrivals are let through
first, and `<name>.reached`, which the first one held writes. Arrivals are counted in each process, held or not.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER_ENV = "GYM_FAULT_POINTS"
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Point:
    """The harness's side."""

    folder: Path
    name: str

    @property
    def hold(self) -> Path:
        return self.folder / f"{self.name}.hold"

    @property
    def reached(self) -> Path:
        return self.folder / f"{self.name}.reached"

    def arm(self, let_through: int = 0) -> None:
        self.reached.unlink(missing_ok=True)
        self.hold.write_text(str(let_through))

    def release(self) -> None:
        self.hold.unlink(missing_ok=True)

    def is_reached(self) -> bool:
        return self.reached.exists()


class Gate:
    """The process's side; without the variable that names the folder nothing is ever held."""

    def __init__(self, name: str) -> None:
        folder = os.environ.get(FOLDER_ENV)
        self._point = Point(Path(folder), name) if folder else None
        self._arrivals = 0

    def pass_through(self) -> None:
        """Block the thread while the point is held."""
        while self._is_held():
            time.sleep(_POLL_SECONDS)
        self._arrivals += 1

    async def wait(self) -> None:
        """The same for a coroutine."""
        mine = self._arrivals
        self._arrivals += 1
        while self._is_held(mine):
            await asyncio.sleep(_POLL_SECONDS)

    def _is_held(self, arrival: int | None = None) -> bool:
        if self._point is None:
            return False
        try:
            let_through = int(self._point.hold.read_text() or 0)
        except FileNotFoundError:
            return False
        if (self._arrivals if arrival is None else arrival) < let_through:
            return False
        if not self._point.reached.exists():
            self._point.reached.write_text(str(os.getpid()))
        return True
