"""Waiting for what sends no event: a file, the end of a process, a port."""

from __future__ import annotations

import time
from collections.abc import Callable

_POLL_SECONDS = 0.02


def wait_until(happened: Callable[[], bool], seconds: float) -> bool:
    """Whether it happened in that time."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
