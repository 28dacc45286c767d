"""Functions for workers of a pool."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def add(left: int, right: int = 0) -> int:
    return left + right


def name_of(library: Any) -> str:
    return str(library.__name__)


def pid() -> int:
    return os.getpid()


def fail(text: str) -> None:
    raise LookupError(text)


def end(code: int) -> None:
    os._exit(code)


def spin() -> None:
    """Never ends, and never lets another thread of its process run for long."""
    while True:
        pass


def announce_and_hold(path: str) -> None:
    """Never ends, and never lets another thread of its process run at all."""
    Path(path).write_text(str(os.getpid()))
    re.match("(a+)+$", "a" * 50 + "b")


def spin_with_child(path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(path).write_text(str(child.pid))
    spin()


def hog(size: int) -> int:
    return len(bytearray(size))


def unpicklable() -> Any:
    return lambda: None


class Odd(Exception):
    """Can't be pickled: it wants two arguments and keeps one."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(left)


def fail_oddly() -> None:
    raise Odd(1, 2)


def inheritance() -> dict[str, Any]:
    """What this process has of the one that started it."""
    return {
        "variables": dict(os.environ),
        "descriptors": sorted(str(fd.readlink()) for fd in _descriptors()),
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "modules": sorted(name for name in sys.modules if name.partition(".")[0] in ("fastapi", "nemo_gym", "ray")),
    }


def _descriptors() -> list[Path]:
    listed = [fd for fd in Path("/proc/self/fd").iterdir() if int(fd.name) > 2]
    return [fd for fd in listed if os.path.lexists(fd)]


def nap_or_spin(number: int) -> int:
    if number % 5 == 0:
        time.sleep(600)
    return number
