"""`gym` with a collector that can be held, or dies, in the middle of a write: for the harness only.

Run as `python -c "from tests.faults.collector import main; main()" eval run …`.
"""

from __future__ import annotations

import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

from tests.faults.points import Gate

DIE_AT_ENV = "GYM_FAULT_DIE_AT_WRITE"
"""`<n>:torn` dies with half of the n-th line written, `<n>:whole` right after it."""
FIRST_WRITE, RECORD = "first-write", "record"


class Writes:
    """Stands in for `os` in the module that writes the books: every line goes through `write`."""

    def __init__(self) -> None:
        number, _, how = os.environ.get(DIE_AT_ENV, "0:").partition(":")
        self._die_at, self._how = int(number), how
        self._lines = 0
        self._first, self._record = Gate(FIRST_WRITE), Gate(RECORD)
        self._in_second_half = False

    def write(self, descriptor: int, data: Any) -> int:
        """One `os.write`, or only half of it where something is to happen in between."""
        if self._in_second_half:
            self._in_second_half = False
            self._record.pass_through()
            return os.write(descriptor, data)
        self._first.pass_through()
        self._lines += 1
        if self._lines == self._die_at:
            self._die(descriptor, data)
        if not _is_record(descriptor):
            return os.write(descriptor, data)
        self._in_second_half = True
        return os.write(descriptor, data[: len(data) // 2])

    def _die(self, descriptor: int, data: Any) -> None:
        size = len(data) // 2 if self._how == "torn" else len(data)
        os.write(descriptor, data[:size])
        os.kill(os.getpid(), signal.SIGKILL)


def _is_record(descriptor: int) -> bool:
    """A line of the main file, rather than of the journal or the failures file."""
    name = Path(f"/proc/self/fd/{descriptor}").readlink().name
    return name.endswith(".jsonl") and not name.endswith("_failures.jsonl")


def hook() -> None:
    """Put `Writes` between the books and the system."""
    from nemo_gym.rollouts import journal

    stand_in = types.SimpleNamespace(**{name: getattr(os, name) for name in dir(os)})
    stand_in.write = Writes().write
    vars(sys.modules[journal.AppendFile.__module__])["os"] = stand_in


def main() -> None:
    hook()
    from nemo_gym.cli.main import main as gym

    gym()
