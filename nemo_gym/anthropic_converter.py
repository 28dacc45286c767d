"""Messages ⇄ Responses, both ways round, as components import it."""

import json
from collections.abc import Iterator
from typing import Any

from nemo_gym.schema.anthropic_egress import MessagesEgress


class AnthropicConverter(MessagesEgress):
    """Serves Messages clients from any model server, and calls Anthropic backends."""

    def anthropic_response_to_sse(self, anthropic_response: dict[str, Any]) -> Iterator[str]:
        """The frames of a whole message, as its streaming client expects them."""
        blocks = anthropic_response.get("content") or []
        started = {**anthropic_response, "content": [], "stop_reason": None, "stop_sequence": None}
        yield self._sse_event("message_start", {"type": "message_start", "message": started})
        for index, block in enumerate(blocks):
            yield from self._block_frames(index, block)
        stop = {key: anthropic_response.get(key) for key in ("stop_reason", "stop_sequence")}
        usage = {"output_tokens": (anthropic_response.get("usage") or {}).get("output_tokens", 0)}
        yield self._sse_event("message_delta", {"type": "message_delta", "delta": stop, "usage": usage})
        yield self._sse_event("message_stop", {"type": "message_stop"})

    def _block_frames(self, index: int, block: dict[str, Any]) -> Iterator[str]:
        shell = {"type": "content_block_start", "index": index, "content_block": self._empty_block_shell(block)}
        yield self._sse_event("content_block_start", shell)
        for delta in self._block_deltas(block):
            yield self._sse_event(
                "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
            )
        yield self._sse_event("content_block_stop", {"type": "content_block_stop", "index": index})

    def _empty_block_shell(self, block: dict[str, Any]) -> dict[str, Any]:
        empty: dict[str, Any] = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }
        return {**block, **empty.get(block["type"], {})}

    def _block_deltas(self, block: dict[str, Any]) -> list[dict[str, Any]]:
        match block["type"]:
            case "text":
                return [{"type": "text_delta", "text": block["text"]}]
            case "thinking":
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                signature = block.get("signature")
                return deltas + ([{"type": "signature_delta", "signature": signature}] if signature else [])
            case "tool_use":
                return [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            case _:
                return []

    def _sse_event(self, event_type: str, data: dict[str, Any]) -> str:
        return f"event: {event_type}\ndata: {json.dumps(data)}\n\n"
