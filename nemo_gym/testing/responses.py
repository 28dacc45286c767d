"""Items, responses and verify requests for the tests of verifiers, as JSON."""

from __future__ import annotations

import json
from typing import Any

Item = dict[str, Any]


def message(*texts: str, role: str = "assistant") -> Item:
    """A message with a part for each text."""
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": "m", "type": "message", "role": role, "status": "completed", "content": parts}


def reasoning(text: str = "hm") -> Item:
    """A reasoning item that says so."""
    return {"id": "t", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def call(name: str, arguments: Any = None, call_id: str = "c") -> Item:
    """A function call; a text for `arguments` stays as it is, so that malformed ones can be made."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def call_output(output: Any, call_id: str = "c") -> Item:
    """What a tool answered: a text, or what becomes one as JSON."""
    text = output if isinstance(output, str) else json.dumps(output)
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def response(*output: Item | str, **fields: Any) -> dict[str, Any]:
    """A response with these items; a text is a message of its own."""
    items = [message(item) if isinstance(item, str) else item for item in output]
    shell = {"id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": items}
    return {**shell, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **fields}


def completion(text: str | None, **fields: Any) -> dict[str, Any]:
    """A chat completion that says so."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    shell = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    return {**shell, "choices": [choice], **fields}


def verify_request(row: dict[str, Any], *output: Item | str, question: Any = "?") -> dict[str, Any]:
    """The row with a response of these items. `question` is the prompt of a row that has none."""
    prompt = {"responses_create_params": {"input": [{"role": "user", "content": question}]}}
    return {**prompt, **row, "response": response(*output)}
