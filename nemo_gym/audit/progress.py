"""What a program that calls an environment's functions tells the one that watches it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DESCRIPTOR_ENV = "NEMO_GYM_PROGRESS_FD"

_descriptor: int | None = None


def begin() -> None:
    """Be watched, if somebody does; an interrupt ends this program at once, whatever its threads do."""
    global _descriptor
    given = os.environ.pop(DESCRIPTOR_ENV, None)
    if given is not None:
        _descriptor = int(given)
        os.set_inheritable(_descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def tell(**said: Any) -> None:
    """Tell it, if there is somebody."""
    if _descriptor is not None:
        os.write(_descriptor, json.dumps(said).encode() + b"\n")


def place_where(is_own: Callable[[Path], bool]) -> str:
    """`file:line` that a thread is executing just now in one of the files that are meant; nothing where none is."""
    for frame in reversed(sys._current_frames().values()):
        at = frame
        while at is not None:
            if is_own(Path(at.f_code.co_filename)):
                return f"{at.f_code.co_filename}:{at.f_lineno}"
            at = at.f_back  # type: ignore[assignment]
    return ""
