"""Old homes of symbols that moved: they still import, and say where the symbol lives now."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def moved_attr_getter(module: str, moved: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module `__getattr__` for `module`.

    `moved` maps an old name to its new home, `"package.module"` or `"package.module:new_name"`. Looking one up emits a
    `DeprecationWarning` with the import to write instead; any other name raises `AttributeError`.
    """

    def getter(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new_name = moved[name].partition(":")
        new_name = new_name or name
        warnings.warn(
            f"{module}.{name} has moved: use `from {home} import {new_name}`.", DeprecationWarning, stacklevel=2
        )
        return getattr(importlib.import_module(home), new_name)

    return getter
