"""What a model server answered, in any of the three dialects: the tokens it carries and the items it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from nemo_gym.schema.token_fields import REQUIRED_TOKEN_METADATA_FIELDS, TOKEN_METADATA_FIELDS
from nemo_gym.token_id_capture.canonical import canonical_json
from nemo_gym.token_id_capture.errors import IncompleteTokensError


@dataclass(frozen=True, slots=True)
class TokenFields:
    """The tokens of one model call, and the index of the output item that carried them."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: Any
    item_index: int


def extract_token_fields(response: Any) -> TokenFields | None:
    """The tokens a response carries, None when it carries none. The arrays are the response's own.

    Raises IncompleteTokensError (a ValueError) when an item has some of the fields but not all, or several items
    have them.
    """
    carriers = _carriers(response)
    carrying = [index for index, carrier in enumerate(carriers) if _token_fields(carrier)]
    if not carrying:
        return None
    if len(carrying) > 1:
        raise IncompleteTokensError(f"{len(carrying)} output items carry token ids; only the last of a call may.")
    fields = _token_fields(carriers[carrying[0]])
    if missing := sorted(REQUIRED_TOKEN_METADATA_FIELDS - fields.keys()):
        raise IncompleteTokensError(f"The response has token fields but lacks {', '.join(missing)}.")
    generation, log_probs = fields["generation_token_ids"], fields["generation_log_probs"]
    if len(generation) != len(log_probs):
        raise IncompleteTokensError(
            f"{len(generation)} generated token ids came with {len(log_probs)} log-probabilities."
        )
    is_item = isinstance(_get(response, "output"), list)
    index = carrying[0] if is_item else len(response_to_output_items(response)) - 1
    return TokenFields(fields["prompt_token_ids"], generation, log_probs, fields.get("routed_experts"), index)


def strip_token_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an item without its token arrays."""
    return {key: value for key, value in item.items() if key not in TOKEN_METADATA_FIELDS}


def response_to_output_items(response: Any) -> list[dict[str, Any]]:
    """What a response says as Responses items, without tokens; of a chat completion, its first choice."""
    output, choices, content = (_get(response, name) for name in ("output", "choices", "content"))
    if isinstance(output, list):
        return [_plain(item) for item in output]
    if choices:
        return _chat_items(_plain(_get(choices[0], "message") or {}))
    return _messages_items([_plain(block) for block in content]) if isinstance(content, list) else []


def plain_items(items: Any) -> list[dict[str, Any]]:
    """Items or messages of a request as plain data, without tokens."""
    return [_plain(item) for item in items or ()]


def _carriers(response: Any) -> list[Any]:
    """What token fields may be on: output items, the message of a chat completion, or an Anthropic message itself."""
    output, choices = _get(response, "output"), _get(response, "choices")
    if isinstance(output, list):
        return output
    return [_get(choices[0], "message") or {}] if choices else [response]


def _token_fields(carrier: Any) -> dict[str, Any]:
    values = {name: _get(carrier, name) for name in TOKEN_METADATA_FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def _get(data: Any, name: str) -> Any:
    return data.get(name) if isinstance(data, Mapping) else getattr(data, name, None)


def _plain(data: Any) -> dict[str, Any]:
    if isinstance(data, BaseModel):
        return data.model_dump(mode="json", by_alias=True, exclude=set(TOKEN_METADATA_FIELDS))
    return strip_token_fields(data)


def response_id_of(response: Any) -> str | None:
    value = _get(response, "id")
    return value if isinstance(value, str) and value else None


def _chat_items(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    blocks = _text_blocks(content) if isinstance(content, str) else [dict(block) for block in content or ()]
    if message.get("refusal"):
        blocks.append({"type": "refusal", "refusal": message["refusal"]})
    calls = [_function_call(call) for call in message.get("tool_calls") or ()]
    return ([_assistant_message(blocks)] if blocks or not calls else []) + calls


def _function_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments") or "",
    }


def _messages_items(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_messages_item(block) for block in blocks] or [_assistant_message([])]


def _messages_item(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "text":
        return _assistant_message(_text_blocks(block.get("text") or ""))
    if block.get("type") == "tool_use":
        arguments = canonical_json(block.get("input") or {})
        return {"type": "function_call", "call_id": block.get("id"), "name": block.get("name"), "arguments": arguments}
    return {"type": "reasoning", "summary": [], "content": [block]}


def _assistant_message(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "status": "completed", "content": blocks}


def _text_blocks(text: str) -> list[dict[str, Any]]:
    return [{"type": "output_text", "text": text, "annotations": []}] if text else []
