"""What a model's answer says, whichever dialect it is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_CALL_ITEMS = frozenset({"function_call", "custom_tool_call", "mcp_call", "computer_call", "local_shell_call"})


@dataclass(frozen=True)
class Answer:
    """Tool calls as `{id, name, arguments}`, the reasoning as one text, and why the model stopped if it was told.

    `content` is the answer without its reasoning: output items, a chat message or content blocks.
    """

    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    reasoning_content: str | None = None
    finish_reason: str | None = None
    content: Any = None

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> Answer:
        """Read the object of a Responses, Chat Completions or Messages answer; anything else says nothing."""
        if isinstance(response.get("output"), list):
            return _of_items(response, _mappings(response["output"]))
        if isinstance(response.get("choices"), list):
            return _of_choice(next(_mappings(response["choices"]), {}))
        if isinstance(response.get("content"), list):
            return _of_blocks(response, _mappings(response["content"]))
        return cls(finish_reason=_text(response.get("stop_reason")) or _reason(response))


def _of_items(response: Mapping[str, Any], items: Iterator[Mapping[str, Any]]) -> Answer:
    known = list(items)
    reasoning = [text for item in known if item.get("type") == "reasoning" for text in _reasoning_texts(item)]
    return Answer(
        tool_calls=[
            _call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments", item.get("input")))
            for item in known
            if item.get("type") in _CALL_ITEMS
        ],
        reasoning_content=_joined(reasoning),
        finish_reason=_reason(response),
        content=[item for item in known if item.get("type") != "reasoning"],
    )


def _reasoning_texts(item: Mapping[str, Any]) -> list[Any]:
    return [part.get("text") for name in ("summary", "content") for part in _mappings(item.get(name))]


def _of_choice(choice: Mapping[str, Any]) -> Answer:
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    calls = []
    for call in _mappings(message.get("tool_calls")):
        function = call.get("function") or call.get("custom") or {}
        calls.append(_call(call.get("id"), function.get("name"), function.get("arguments", function.get("input"))))
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    hidden = ("reasoning_content", "reasoning")
    return Answer(
        tool_calls=calls,
        reasoning_content=_text(reasoning) or None,
        finish_reason=_text(choice.get("finish_reason")),
        content={name: value for name, value in message.items() if name not in hidden} or None,
    )


def _of_blocks(response: Mapping[str, Any], blocks: Iterator[Mapping[str, Any]]) -> Answer:
    known = list(blocks)
    return Answer(
        tool_calls=[
            _call(block.get("id"), block.get("name"), block.get("input"))
            for block in known
            if block.get("type") == "tool_use"
        ],
        reasoning_content=_joined([block.get("thinking") for block in known if block.get("type") == "thinking"]),
        finish_reason=_text(response.get("stop_reason")),
        content=[block for block in known if block.get("type") not in {"thinking", "redacted_thinking"}],
    )


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "name": name, "arguments": arguments}


def _reason(response: Mapping[str, Any]) -> str | None:
    details = response.get("incomplete_details")
    if isinstance(details, Mapping):
        return _text(details.get("reason"))
    choice = next(_mappings(response.get("choices")), {})
    return _text(choice.get("finish_reason"))


def _mappings(values: Any) -> Iterator[Mapping[str, Any]]:
    return (value for value in values if isinstance(value, Mapping)) if isinstance(values, list) else iter(())


def _joined(texts: list[Any]) -> str | None:
    return "\n".join(text for text in texts if isinstance(text, str) and text) or None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
