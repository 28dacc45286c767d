"""What a model's answer says, in whatever dialect it was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TOOL_CALL_TYPES = frozenset(
    {
        "function_call",
        "tool_call",
        "tool_use",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "file_search_call",
        "web_search_call",
        "computer_call",
        "image_generation_call",
        "code_interpreter_call",
        "local_shell_call",
        "custom_tool_call",
    }
)
_REASONING_TYPES = frozenset({"reasoning", "thinking", "redacted_thinking", "reasoning_text", "summary_text"})
_CONTENT_KEYS = ("content", "text", "output", "choices", "message", "refusal")
_REASONING_KEYS = ("reasoning", "reasoning_content", "thinking", "summary", "encrypted_content", "data")


def has_tool_call(payload: Any) -> bool:
    """Whether a tool call stands anywhere in an answer."""
    return any(block.get("type") in TOOL_CALL_TYPES or bool(block.get("tool_calls")) for block in _blocks(payload))


def has_text(payload: Any) -> bool:
    """Whether an answer says something, reasoning not counted."""
    if isinstance(payload, str):
        return bool(payload.strip())
    if isinstance(payload, list):
        return any(map(has_text, payload))
    if not isinstance(payload, Mapping) or payload.get("type") in _REASONING_TYPES:
        return False
    return any(has_text(payload.get(key)) for key in _CONTENT_KEYS)


def has_reasoning(payload: Any) -> bool:
    """Whether reasoning with text stands anywhere in an answer."""
    return any(
        _says_something(block.get(key))
        for block in _blocks(payload)
        for key in (*_REASONING_KEYS, *(_CONTENT_KEYS if block.get("type") in _REASONING_TYPES else ()))
    )


def _says_something(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, list):
        return any(map(_says_something, value))
    return isinstance(value, Mapping) and any(_says_something(value.get(key)) for key in ("text", "content", "summary"))


def _blocks(payload: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(payload, Mapping):
        yield payload
        for key in _CONTENT_KEYS:
            yield from _blocks(payload.get(key))
    elif isinstance(payload, list):
        for item in payload:
            yield from _blocks(item)
