"""The object a stream stood for, put together from its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from nemo_gym.capture.events import events_in

_Event = tuple[str | None, dict[str, Any]]

_JOINED = ("content", "reasoning_content", "reasoning", "refusal")
_ENVELOPE = ("id", "created", "model", "system_fingerprint", "service_tier")
_LAST_OF_RESPONSES = frozenset({"response.completed", "response.incomplete", "response.failed"})


def reconstruct_streamed_response(raw: bytes, dialect: str) -> dict[str, Any] | None:
    """What the same request would have been answered without streaming; None when the stream holds no such thing."""
    assemble = _ASSEMBLERS.get(dialect)
    return assemble(events_in(raw)) if assemble is not None else None


def _responses(events: Iterable[_Event]) -> dict[str, Any] | None:
    last = None
    for name, data in events:
        response = data.get("response")
        if (name or data.get("type")) in _LAST_OF_RESPONSES and isinstance(response, dict):
            last = response
    return last


# --- chat completions -------------------------------------------------------------------------------------------------


def _chat(events: Iterable[_Event]) -> dict[str, Any] | None:
    completion: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for _, chunk in events:
        if not isinstance(chunk.get("choices"), list):
            continue
        completion |= {name: chunk[name] for name in _ENVELOPE if chunk.get(name) is not None}
        if chunk.get("usage") is not None:
            completion["usage"] = chunk["usage"]
        for part in chunk["choices"]:
            if isinstance(part, dict):
                index = _index(part)
                _add_choice(choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None}), part)
    if not completion and not choices:
        return None
    ended = [_with_tool_calls(choice) for _, choice in sorted(choices.items())]
    return {**completion, "object": "chat.completion", "choices": ended}


def _add_choice(choice: dict[str, Any], part: dict[str, Any]) -> None:
    message = choice["message"]
    delta = part.get("delta")
    if isinstance(delta, dict):
        message["role"] = delta.get("role") or message.get("role") or "assistant"
        for name in _JOINED:
            if isinstance(delta.get(name), str):
                message[name] = (message.get(name) or "") + delta[name]
        for call in delta.get("tool_calls") or ():
            if isinstance(call, dict):
                _add_tool_call(message.setdefault("tool_calls", {}), call)
    if part.get("finish_reason") is not None:
        choice["finish_reason"] = part["finish_reason"]


def _add_tool_call(calls: dict[int, dict[str, Any]], delta: dict[str, Any]) -> None:
    call = calls.setdefault(_index(delta), {"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = delta.get("id") or call["id"]
    call["type"] = delta.get("type") or call["type"]
    function = delta.get("function")
    if isinstance(function, dict):
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


def _with_tool_calls(choice: dict[str, Any]) -> dict[str, Any]:
    message = {"content": None, **choice["message"]}
    if "tool_calls" in message:
        message["tool_calls"] = [call for _, call in sorted(message["tool_calls"].items())]
    return {**choice, "message": message}


def _index(part: dict[str, Any]) -> int:
    index = part.get("index")
    return index if isinstance(index, int) else 0


# --- messages ---------------------------------------------------------------------------------------------------------


def _messages(events: Iterable[_Event]) -> dict[str, Any] | None:
    message: dict[str, Any] | None = None
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for name, data in events:
        kind = data.get("type") or name
        if kind == "message_start" and isinstance(data.get("message"), dict):
            message = dict(data["message"])
        elif kind == "content_block_start" and isinstance(data.get("content_block"), dict):
            blocks[_index(data)] = dict(data["content_block"])
        elif kind == "content_block_delta" and isinstance(data.get("delta"), dict):
            _add_block_delta(blocks.setdefault(_index(data), {}), inputs, _index(data), data["delta"])
        elif kind == "message_delta" and message is not None:
            message |= data.get("delta") or {}
            message["usage"] = {**(message.get("usage") or {}), **_told(data.get("usage"))}
    if message is None:
        return None
    for index, text in inputs.items():
        blocks[index] |= _tool_input(text)
    return {**message, "content": [block for _, block in sorted(blocks.items())]}


def _add_block_delta(block: dict[str, Any], inputs: dict[int, str], index: int, delta: dict[str, Any]) -> None:
    for name in ("text", "thinking", "signature"):
        if isinstance(delta.get(name), str):
            block[name] = (block.get(name) or "") + delta[name]
    if isinstance(delta.get("partial_json"), str):
        inputs[index] = inputs.get(index, "") + delta["partial_json"]
    if isinstance(delta.get("citation"), dict):
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]


def _tool_input(text: str) -> dict[str, Any]:
    """The input of a tool call; text that was cut off stays text."""
    if not text:
        return {}
    try:
        return {"input": orjson.loads(text)}
    except orjson.JSONDecodeError:
        return {"input": {}, "partial_json": text}


def _told(usage: Any) -> dict[str, Any]:
    return {name: value for name, value in usage.items() if value is not None} if isinstance(usage, dict) else {}


_ASSEMBLERS: dict[str, Callable[[Iterable[_Event]], dict[str, Any] | None]] = {
    "responses": _responses,
    "chat": _chat,
    "messages": _messages,
}
