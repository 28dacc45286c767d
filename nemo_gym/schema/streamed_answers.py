"""Whole answers as the events and chunks a streaming client waits for."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from nemo_gym.schema.namespaces import NamespaceMap, restore_namespace_tool_calls
from nemo_gym.schema.wire import plain


def responses_events(response: Any, ns_map: NamespaceMap | None = None) -> Iterator[dict[str, Any]]:
    """Created, one done event per output item, completed."""
    whole = restore_namespace_tool_calls(plain(response), ns_map)
    yield _created(whole)
    output = whole.get("output") or []
    for index, item in enumerate(output):
        yield {"type": "response.output_item.done", "sequence_number": index + 1, "output_index": index, "item": item}
    yield {"type": "response.completed", "sequence_number": len(output) + 1, "response": whole}


def responses_failure_events(message: str, code: str) -> Iterator[dict[str, Any]]:
    """Created, failed."""
    envelope = {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "model": "",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    yield _created(envelope)
    failed = {**envelope, "status": "failed", "error": {"code": code, "message": message}}
    yield {"type": "response.failed", "sequence_number": 1, "response": failed}


def _created(response: dict[str, Any]) -> dict[str, Any]:
    started = {**response, "status": "in_progress", "output": []}
    return {"type": "response.created", "sequence_number": 0, "response": started}


def chat_chunks(completion: Any, include_usage: bool = False) -> Iterator[dict[str, Any]]:
    """Per choice its role, reasoning, content, refusal, calls and finish reason; then usage if wanted."""
    whole = plain(completion)
    envelope = {
        "id": whole.get("id"),
        "object": "chat.completion.chunk",
        "created": whole.get("created"),
        "model": whole.get("model"),
        "system_fingerprint": whole.get("system_fingerprint"),
    }
    for choice in whole.get("choices") or ():
        for delta in _deltas(choice.get("message") or {}):
            yield {**envelope, "choices": [_chunk_choice(choice, delta, None)]}
        yield {**envelope, "choices": [_chunk_choice(choice, {}, choice.get("finish_reason"))]}
    if include_usage:
        yield {**envelope, "choices": [], "usage": whole.get("usage")}


def _chunk_choice(choice: dict[str, Any], delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": choice.get("index", 0), "delta": delta, "finish_reason": finish_reason}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant"}
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        yield {"reasoning_content": reasoning}
    for key in ("content", "refusal"):
        if message.get(key):
            yield {key: message[key]}
    calls = message.get("tool_calls")
    if calls:
        yield {"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}
