"""Configs and metrics in the flat form and with the names that MLflow accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_REFUSED = re.compile(r"[^/\w.\-: ]")
_BETWEEN = "___"


def accepted_name(name: str, longest: int) -> str:
    """The name as MLflow accepts it, at most `longest` characters; empty when nothing of it can be kept.

    `@` is spelled out, other characters that it refuses become `_`; parts between slashes that a file system would
    take for itself (empty, `.`, `..`, hidden) are dropped or lose their dots. What is too long loses its middle.
    """
    spelled = _REFUSED.sub("_", name.replace("@", "_at_"))
    parts = [_part(part) for part in spelled.split("/")]
    return _shortened("/".join(filter(None, parts)), longest)


def flattened(value: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of plain data by path, like `a.b` and `a[0]`; empty containers are leaves."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flattened(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from flattened(item, f"{prefix}[{index}]")
    else:
        yield prefix, value


def _part(part: str) -> str:
    dots = len(part) - len(part.lstrip("."))
    return "_" * dots + part[dots:]


def _shortened(name: str, longest: int) -> str:
    """Beginning and end of a name, more of the beginning; parts cut in two stay parts."""
    if len(name) <= longest:
        return name
    kept = longest - len(_BETWEEN)
    head = kept - kept // 3
    return f"{name[:head]}{_BETWEEN}{name[len(name) - (kept - head) :]}"
