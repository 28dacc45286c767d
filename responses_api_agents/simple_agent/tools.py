"""Calling the tools a model asks for, of those its row offers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import quote

import orjson

from nemo_gym.server_utils import ROLLOUT_PATH_PREFIX

RESERVED_ROUTES = frozenset({"verify", "seed_session", "close_session", "aggregate_metrics", "reverify_mode", "mcp"})
"""Routes of a resources server that are not for its model, whatever the row says."""


_ROOTS = frozenset({ROLLOUT_PATH_PREFIX, "mcp"})
"""First segments of paths below which everything is the framework's: after the prefix, the route itself."""


_MAX_SHOWN_NAME = 100


class RefusedToolCall(Exception):
    """A call that is answered without being made. `output` is what the model reads instead of a result."""

    def __init__(self, reason: str, *, error_type: str = "RefusedToolCall") -> None:
        super().__init__(reason)
        self.output = json.dumps({"error": reason})
        self.error_type = error_type


def offered_tools(tools: Iterable[Any]) -> list[str]:
    """The names of the functions among a request's tools that may be called, in order."""
    names = (tool.get("name") for tool in tools if isinstance(tool, Mapping) and tool.get("type") == "function")
    return [name for name in names if isinstance(name, str) and _is_callable(name)]


def tool_path(name: str, offered: list[str]) -> str:
    """The route of a tool. RefusedToolCall for one that isn't offered, saying what is."""
    if name not in offered:
        known = f"The tools are: {', '.join(offered)}." if offered else "There are no tools."
        raise RefusedToolCall(f"There is no tool {name[:_MAX_SHOWN_NAME]!r}. {known}")
    return "/" + quote(name, safe="")


def parsed_arguments(arguments: str) -> dict[str, Any]:
    """The arguments of a call. RefusedToolCall for what is no JSON object, or none that can be sent on."""
    try:
        parsed = json.loads(arguments, parse_constant=_refuse_constant, parse_float=_finite)
        if not isinstance(parsed, dict):
            raise TypeError(f"expected a JSON object, got {type(parsed).__name__}")
        orjson.dumps(parsed)
    except (ValueError, TypeError, RecursionError) as error:
        reason = f"Invalid tool call arguments: {error!r}"
        raise RefusedToolCall(reason, error_type=type(error).__name__) from None
    return parsed


def tool_output(content: bytes, most_bytes: int | None) -> str:
    """What a tool answered, as the model reads it. RefusedToolCall for more than `most_bytes`; none or 0 bounds
    nothing."""
    if most_bytes and len(content) > most_bytes:
        reason = f"The tool's answer has {len(content):,} bytes, more than the {most_bytes:,} allowed: ask for less"
        raise RefusedToolCall(reason, error_type="ToolOutputTooLarge")
    return content.decode("utf-8", errors="replace")


def _is_callable(name: str) -> bool:
    bare = name.strip("/. ")
    is_below = bare.partition("/")[0] in _ROOTS
    return bool(bare) and bare.isprintable() and bare not in RESERVED_ROUTES and not is_below


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse_constant(number)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
