"""What programs find there already, as they do at the sites that set such problems: the usual imports, and deep
recursion. A text of Python, run before theirs."""

_STARRED = (
    *("string", "re", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools"),
    *("functools", "operator", "io", "json", "typing", "datetime"),
)
_NAMED = (*_STARRED, "sys", "builtins", "time")

import_string = "\n".join(
    [
        *(f"from {name} import *" for name in _STARRED),
        "from builtins import *",
        f"import {', '.join(_NAMED)}",
        "sys.setrecursionlimit(50000)",
    ]
)
"""Imports before the program, and the recursion limit."""

_STACK = """
def _grow_stack():
    import resource
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = 4 << 30
    resource.setrlimit(resource.RLIMIT_STACK, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
try:
    _grow_stack()
except (ImportError, OSError, ValueError):
    pass
del _grow_stack
"""

_STDIN = """
def open(file, mode="r", *args, _builtins=builtins, _sys=sys, **kwargs):
    try:
        return _builtins.open(file, mode, *args, **kwargs)
    except OSError:
        if not isinstance(mode, str) or "r" not in mode:
            raise
        return _sys.stdin.buffer if "b" in mode else _sys.stdin
"""
"""Programs that read an input file of some name find the input there."""

_CALL = """
__name__ = "solution"
sys.modules["solution"] = sys.modules["__main__"]
"""
"""A function is called from outside, so that a program's `if __name__ == "__main__"` is none of the test."""


def prelude(*, calls: bool) -> str:
    """The text to run before a program whose function is called, or that reads stdin."""
    return import_string + _STACK + (_CALL if calls else _STDIN)
