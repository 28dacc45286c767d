"""Conversation items of all three dialects in one canonical form, so that the same words always hash the same.

An item is a Responses item, a Chat Completions message or an Anthropic message, as plain data. Its segments come in the
order in which they stand: content parts, tool calls, tool results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

_TEXT_KINDS = frozenset({"", "text", "input_text", "output_text"})


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of content: text under the type `text`, anything else as sorted JSON under its own type."""

    type: str
    payload: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; the name carries its namespace."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a tool call brought."""

    id: str
    payload: str


Segment: TypeAlias = Part | Call | CallResult


def role_or_type(item: Mapping[str, Any]) -> str:
    return str(item.get("role") or item.get("type") or "")


def is_assistant_authored(item: Mapping[str, Any]) -> bool:
    """Whether the model itself said this in words or calls; its reasoning doesn't count."""
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def segments(item: Mapping[str, Any]) -> Iterator[Segment]:
    """What an item says."""
    if item.get("type") == "function_call":
        yield Call(_text(item.get("call_id")), _full_name(item), canonical_arguments(item.get("arguments")))
        return
    if item.get("type") == "function_call_output":
        yield CallResult(_text(item.get("call_id")), _payload(item.get("output")))
        return
    if item.get("role") == "tool":
        yield CallResult(_text(item.get("tool_call_id")), _payload(item.get("content")))
        return
    yield from _content(item.get("content"))
    if item.get("type") == "reasoning":
        yield from _content(item.get("summary"))
    if isinstance(refusal := item.get("refusal"), str) and refusal:
        yield Part("refusal", canonical_json({"refusal": refusal, "type": "refusal"}))
    for call in item.get("tool_calls") or ():
        function = call.get("function") or {}
        yield Call(_text(call.get("id")), _full_name(function), canonical_arguments(function.get("arguments")))


def _content(content: Any) -> Iterator[Segment]:
    if isinstance(content, str):
        if content:
            yield Part("text", content)
        return
    for block in content or ():
        yield from _block(block)


def _block(block: Any) -> Iterator[Segment]:
    if isinstance(block, str):
        block = {"type": "text", "text": block}
    kind = _text(block.get("type"))
    if kind in _TEXT_KINDS:
        if text := _text(block.get("text")):
            yield Part("text", text)
    elif kind == "tool_use":
        yield Call(_text(block.get("id")), _full_name(block), canonical_arguments(block.get("input")))
    elif kind == "tool_result":
        yield CallResult(_text(block.get("tool_use_id")), _payload(block.get("content")))
    else:
        yield Part(kind, canonical_json(block))


def canonical_arguments(arguments: Any) -> str:
    """Arguments as JSON with sorted keys; what isn't JSON as it is, without space around it."""
    if arguments is None:
        return ""
    if not isinstance(arguments, str):
        return canonical_json(arguments)
    try:
        return canonical_json(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments.strip()


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def _payload(value: Any) -> str:
    """A tool's output: text of whatever form as that text, the rest as JSON."""
    if isinstance(value, str):
        return value
    parts = list(_content(value)) if isinstance(value, list) else None
    if parts is not None and all(isinstance(part, Part) and part.type == "text" for part in parts):
        return "".join(part.payload for part in parts if isinstance(part, Part))
    return "" if value is None else canonical_json(value)


def _full_name(call: Mapping[str, Any]) -> str:
    namespace, name = call.get("namespace"), _text(call.get("name"))
    return f"{namespace}__{name}" if namespace else name


def _text(value: Any) -> str:
    return "" if value is None else str(value)
