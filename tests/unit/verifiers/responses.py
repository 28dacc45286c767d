"""Responses for tests of verifiers."""

from __future__ import annotations

import json
from typing import Any

from nemo_gym.schema.response import NeMoGymResponse


def message(*texts: str, role: str = "assistant") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "m", "role": role, "status": "completed", "content": content}


def reasoning(text: str = "hm") -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


def call(name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": text}


def response(*output: dict[str, Any]) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate(
        {
            "id": "x",
            "created_at": 0,
            "model": "m",
            "object": "response",
            "output": list(output),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
