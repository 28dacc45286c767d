"""Validation errors as a client gets them: where and why, without handing back what was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import orjson
from fastapi.encoders import jsonable_encoder

from nemo_gym.config.secrets import MASK, looks_like_secret_key, recursively_hide_secrets
from nemo_gym.serve.redaction import redact, shown

MAX_LISTED = 50
MAX_INPUT_CHARS = 200
_MAX_MESSAGE_CHARS = 500
_MAX_LOC_ITEMS = 40
_MAX_INPUT_ITEMS = 20


def listed(errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer's fields: `detail`, the first errors as FastAPI words them, and `errors_not_listed` if there are more.

    An input is repeated when it is short, is no secret by its name, and holds none that is known; longer text is cut,
    larger containers are named by their size.
    """
    fields: dict[str, Any] = {"detail": [_told(error) for error in islice(errors, MAX_LISTED)]}
    more = len(errors) - MAX_LISTED
    return fields | {"errors_not_listed": more} if more > 0 else fields


def _told(error: Mapping[str, Any]) -> dict[str, Any]:
    loc = tuple(error.get("loc", ()))
    told: dict[str, Any] = {}
    for name, value in error.items():
        if name == "loc":
            told[name] = [_cut(part) if isinstance(part, str) else part for part in loc[:_MAX_LOC_ITEMS]]
        elif name == "input":
            told[name] = MASK if _is_secret(loc) and value not in (None, "") else _shown_input(value)
        elif name == "ctx":
            told[name] = {key: _cut(item) if isinstance(item, str) else item for key, item in _plain(value).items()}
        else:
            told[name] = shown(value, _MAX_MESSAGE_CHARS) if isinstance(value, str) else value
    return told


def _plain(context: Any) -> dict[str, Any]:
    encoded = jsonable_encoder(context)
    return encoded if isinstance(encoded, dict) else {}


def _cut(text: str) -> str:
    return shown(text, MAX_INPUT_CHARS)


def _is_secret(loc: Sequence[Any]) -> bool:
    return any(isinstance(part, str) and looks_like_secret_key(part) for part in loc[1:])


def _shown_input(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, bytes):
        return _cut(value[: 4 * MAX_INPUT_CHARS].decode("utf-8", errors="replace"))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return f"<a number of {value.bit_length()} bits>"
    if isinstance(value, Mapping | list | tuple):
        return _shown_container(value)
    return jsonable_encoder(value) if value is None or isinstance(value, bool | int | float) else f"<{_name(value)}>"


def _shown_container(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> Any:
    if not _is_small(value, depth=4):
        return f"<{_name(value)} of {len(value)}>"
    try:
        copy = orjson.loads(orjson.dumps(value))
        recursively_hide_secrets(copy)
        text = redact(orjson.dumps(copy).decode())
        return orjson.loads(text) if len(text) <= MAX_INPUT_CHARS else f"<{_name(value)} of {len(value)}>"
    except (TypeError, ValueError):  # what orjson doesn't encode, or a mask that took a quotation mark with it
        return f"<{_name(value)} of {len(value)}>"


def _is_small(value: Any, *, depth: int) -> bool:
    if isinstance(value, str | bytes):
        return len(value) <= MAX_INPUT_CHARS
    if not isinstance(value, Mapping | list | tuple):
        return True
    items = value.values() if isinstance(value, Mapping) else value
    return depth > 0 and len(value) <= _MAX_INPUT_ITEMS and all(_is_small(item, depth=depth - 1) for item in items)


def _name(value: Any) -> str:
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else type(value).__name__
