"""Marks on functions."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def experimental(fn: Callable[P, R]) -> Callable[P, R]:
    """Say on stderr, at each call, that the function may still change."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        print(f"{fn.__name__} is experimental and may change.", file=sys.stderr)
        return fn(*args, **kwargs)

    return call
