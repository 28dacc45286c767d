"""Stages of a collection that keep the loop to themselves for long: whoever ends the run need not wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_inside = 0


@contextmanager
def long_stage() -> Iterator[None]:
    """Inside, a signal that ends the run raises CancelledError at once; nothing in it may be hurt by that."""
    global _inside
    _inside += 1
    try:
        yield
    finally:
        _inside -= 1


def is_in_long_stage() -> bool:
    return _inside > 0
