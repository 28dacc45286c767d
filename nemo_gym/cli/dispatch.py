"""How a command is entered: by the overrides it reads from `sys.argv`, as if they had been typed."""

import importlib
import sys
from collections.abc import Sequence

typed: list[str] = []
"""What the person typed after `gym`, for messages that repeat it; empty where no command line was read."""


def dispatch(target: str, overrides: Sequence[str]) -> None:
    """Call `"module:function"` with `sys.argv` holding nothing but the overrides."""
    module, _, function = target.partition(":")
    sys.argv = [sys.argv[0], *overrides]
    getattr(importlib.import_module(module), function)()
