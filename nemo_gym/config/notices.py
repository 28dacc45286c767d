"""Words to the person at the terminal that are no errors. Standard output belongs to results, so they go to stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def notify(message: str) -> None:
    """Say something worth knowing."""
    _say("Note", message)


def warn(message: str) -> None:
    """Say something that is probably a mistake."""
    _say("Warning", message)


@contextmanager
def quietly() -> Iterator[None]:
    """Say nothing inside, for work that will be done again aloud."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _say(kind: str, message: str) -> None:
    if not _quiet.get():
        print(f"{kind}: {message}", file=sys.stderr)
