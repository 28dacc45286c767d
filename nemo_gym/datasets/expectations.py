"""Metrics files beside data sets: what they promise, and what happens when rows no longer keep it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.notices import warn
from nemo_gym.datasets.errors import DatasetError

_LARGE_TOLERANCE = 5e-3
_SMALL_TOLERANCE = 5e-4


@dataclass(frozen=True)
class Conflict:
    """A metrics file that promises something else than was measured, and the file with the measurements."""

    expected: Path
    measured: Path


def write_or_compare(path: Path, metrics: Mapping[str, Any], *, overwrite: bool) -> Conflict | None:
    """Write a metrics file that isn't there; compare one that is, leaving it alone when it is kept.

    A broken promise is printed. With `overwrite` the new figures replace the old ones; without, they are written beside
    as `<stem>_conflict.json`, which is returned.
    """
    text = json.dumps(metrics, indent=4, default=str)
    if not path.exists():
        _write(path, text)
        return None
    differences = _differences(_read(path), json.loads(text), "")
    if not differences:
        return None
    warn(f"The rows measure differently from {path}:\n" + "\n".join(f"  {line}" for line in differences))
    if overwrite:
        _write(path, text)
        return None
    conflict = Conflict(path, path.with_name(f"{path.stem}_conflict.json"))
    _write(conflict.measured, text)
    return conflict


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DatasetError(f"{path} can't be written ({error.strerror}).") from error


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"The metrics file {path} can't be read ({error}): delete it to have it written anew."
        ) from error


def _differences(expected: Any, measured: Any, place: str) -> list[str]:
    """What of `expected` doesn't hold, a line each. Additional keys in `measured` are fine."""
    if isinstance(expected, Mapping) and isinstance(measured, Mapping):
        lines = []
        for key, value in expected.items():
            where = f"{place}.{key}" if place else str(key)
            if key in measured:
                lines += _differences(value, measured[key], where)
            else:
                lines.append(f"{where}: expected {_short(value)}, not measured any more")
        return lines
    return [] if _equal(expected, measured) else [f"{place}: expected {_short(expected)}, found {_short(measured)}"]


def _equal(expected: Any, measured: Any) -> bool:
    if _is_float_pair(expected, measured):
        size = max(abs(expected), abs(measured))
        return bool(abs(expected - measured) <= (_LARGE_TOLERANCE if size >= 1 else _SMALL_TOLERANCE))
    if isinstance(expected, list) and isinstance(measured, list):
        return Counter(map(_canonical, expected)) == Counter(map(_canonical, measured))
    return type(expected) is type(measured) and bool(expected == measured)


def _is_float_pair(expected: Any, measured: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (expected, measured))
    return numbers and (isinstance(expected, float) or isinstance(measured, float))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:80] + "…"
