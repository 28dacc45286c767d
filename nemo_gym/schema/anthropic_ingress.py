"""A Messages client in front of a Gym model server: its request in, our answer out."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from nemo_gym.schema.anthropic_messages import NeMoGymAnthropicMessage
from nemo_gym.schema.errors import InvalidAnswer, InvalidContent, UnsupportedInDialect, reading
from nemo_gym.schema.images import data_url
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.schema.wire import plain

_SAME_IN_BOTH = {"model": "model", "max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p"}
_EMPTY_SCHEMA = {"type": "object", "properties": {}}
_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def require_fields(anthropic_body: Mapping[str, Any]) -> None:
    """Raises InvalidContent, worded as the Messages API words it, for a request that leaves out what it must say."""
    for field in ("messages", "max_tokens"):
        if anthropic_body.get(field) is None:
            raise InvalidContent(f"{field}: Field required")


class MessagesIngress:
    """Messages request → Responses request, and Responses answer → Messages answer."""

    def anthropic_request_to_responses(self, anthropic_body: Any) -> NeMoGymResponseCreateParamsNonStreaming:
        """The same request for any Gym model server. Keys without a form there are ignored.

        Raises NotImplementedError for content or a tool choice without a form there, ValueError for a malformed body.
        """
        with reading("the Messages request"):
            return self._request_to_responses(anthropic_body)

    def _request_to_responses(self, anthropic_body: Any) -> NeMoGymResponseCreateParamsNonStreaming:
        request: Mapping[str, Any] = plain(anthropic_body)
        body = {ours: request[key] for key, ours in _SAME_IN_BOTH.items() if request.get(key) is not None}
        body["input"] = self._anthropic_messages_to_input_items(dict(request))
        instructions = self._anthropic_system_to_instructions(request.get("system"))
        if instructions:
            body["instructions"] = instructions
        if request.get("tools"):
            body["tools"] = self._anthropic_tools_to_responses(request["tools"])
        choice = request.get("tool_choice")
        if choice is not None:
            body["tool_choice"] = self._anthropic_tool_choice_to_responses(choice)
            if choice.get("disable_parallel_tool_use"):
                body["parallel_tool_calls"] = False
        return NeMoGymResponseCreateParamsNonStreaming.model_validate(body)

    def _anthropic_system_to_instructions(self, system: Any) -> str | None:
        if system is None or isinstance(system, str):
            return system
        unsupported = [block.get("type") for block in system if block.get("type") != "text"]
        if unsupported:
            raise UnsupportedInDialect(f"system blocks of type {unsupported[0]!r} are not supported")
        return "\n".join(block["text"] for block in system)

    def _anthropic_messages_to_input_items(self, anthropic_body: dict[str, Any]) -> list[Any]:
        items: list[Any] = []
        for message in anthropic_body.get("messages") or ():
            role, content = message["role"], message["content"]
            if isinstance(content, str):
                items.append({"type": "message", "role": role, "content": content})
            else:
                self._append_anthropic_blocks_as_items(role, content, items)
        return items

    def _append_anthropic_blocks_as_items(self, role: str, blocks: list[dict[str, Any]], items: list[Any]) -> None:
        parts: list[dict[str, Any]] = []
        for block in blocks:
            match block.get("type"):
                case "text":
                    parts.append({"type": "input_text", "text": block["text"]})
                case "image":
                    parts.append(self._anthropic_image_to_input_part(block))
                case _:
                    _append_message(role, parts, items)
                    parts = []
                    items.append(self._special_block_to_item(block))
        _append_message(role, parts, items)

    def _special_block_to_item(self, block: dict[str, Any]) -> dict[str, Any]:
        match block.get("type"):
            case "tool_use":
                call = {"call_id": block["id"], "id": block["id"], "name": block["name"]}
                return {"type": "function_call", **call, "arguments": json.dumps(block.get("input") or {})}
            case "tool_result":
                output = self._anthropic_tool_result_content(block.get("content"))
                return {"type": "function_call_output", "call_id": block["tool_use_id"], "output": output}
            case "thinking":
                summary = [{"type": "summary_text", "text": block["thinking"]}]
                item = {"type": "reasoning", "id": f"rs_{uuid4().hex}", "summary": summary}
                return item | ({"encrypted_content": block["signature"]} if block.get("signature") else {})
            case kind:
                raise UnsupportedInDialect(f"message blocks of type {kind!r} are not supported")

    def _anthropic_image_to_input_part(self, block: dict[str, Any]) -> dict[str, Any]:
        source = block["source"]
        if source.get("type") != "base64":
            raise UnsupportedInDialect(f"images by {source.get('type')!r} are not supported; send base64")
        url = self._build_image_data_url(source["media_type"], source["data"])
        return {"type": "input_image", "image_url": url, "detail": "auto"}

    def _build_image_data_url(self, media_type: str, data: str) -> str:
        return data_url(media_type, data)

    def _anthropic_tool_result_content(self, content: Any) -> Any:
        if content is None or isinstance(content, str):
            return content or ""
        if all(block.get("type") == "text" for block in content):
            return "\n".join(block["text"] for block in content)
        return [self._tool_result_part(block) for block in content]

    def _tool_result_part(self, block: dict[str, Any]) -> dict[str, Any]:
        match block.get("type"):
            case "text":
                return {"type": "input_text", "text": block["text"]}
            case "image":
                return self._anthropic_image_to_input_part(block)
            case kind:
                raise UnsupportedInDialect(f"tool results of type {kind!r} are not supported")

    def _anthropic_tools_to_responses(self, tools: Any) -> list[dict[str, Any]]:
        return [
            {
                "type": "function",
                "name": tool["name"],
                "description": tool.get("description"),
                "parameters": tool.get("input_schema") or _EMPTY_SCHEMA,
                "strict": False,
            }
            for tool in tools
        ]

    def _anthropic_tool_choice_to_responses(self, tool_choice: Any) -> Any:
        match tool_choice.get("type"):
            case "auto" | "none" as mode:
                return mode
            case "any":
                return "required"
            case "tool":
                return {"type": "function", "name": tool_choice["name"]}
            case kind:
                raise UnsupportedInDialect(f"tool_choice of type {kind!r} is not supported")

    def responses_to_anthropic_response(self, response: NeMoGymResponse, model: str) -> dict[str, Any]:
        """A response as a Messages answer.

        Raises NotImplementedError for items without a form there, ValueError for arguments that are no JSON object.
        """
        blocks = [block for item in self._iter_output_dicts(response) for block in self._item_to_blocks(item)]
        has_tool_use = any(block["type"] == "tool_use" for block in blocks)
        usage = response.usage
        message = NeMoGymAnthropicMessage.model_validate(
            {
                "id": response.id,
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": blocks,
                "stop_reason": self._stop_reason_from_response(response, has_tool_use),
                "stop_sequence": None,
                "usage": {
                    "input_tokens": usage.input_tokens if usage else 0,
                    "output_tokens": usage.output_tokens if usage else 0,
                },
            }
        )
        return message.model_dump(exclude_none=True)

    def _iter_output_dicts(self, response: NeMoGymResponse) -> Iterator[dict[str, Any]]:
        for item in response.output:
            yield item.model_dump()

    def _item_to_blocks(self, item: dict[str, Any]) -> list[dict[str, Any]]:
        match item.get("type"):
            case "message":
                return self._output_message_to_anthropic_blocks(item)
            case "reasoning":
                return self._reasoning_item_to_anthropic_blocks(item)
            case "function_call":
                return [self._function_call_to_tool_use(item)]
            case kind:
                raise UnsupportedInDialect(f"output items of type {kind!r} have no form in the Messages API")

    def _output_message_to_anthropic_blocks(self, item: dict[str, Any]) -> list[dict[str, Any]]:
        if item.get("role") != "assistant":
            raise UnsupportedInDialect(f"output messages of role {item.get('role')!r} have no form in the Messages API")
        content = item.get("content") or ()
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        texts = (part.get("refusal") if part.get("type") == "refusal" else part.get("text") for part in content)
        return [{"type": "text", "text": text} for text in texts if text is not None]

    def _reasoning_item_to_anthropic_blocks(self, item: dict[str, Any]) -> list[dict[str, Any]]:
        signature = item.get("encrypted_content") or ""
        return [
            {"type": "thinking", "thinking": part["text"], "signature": signature} for part in item.get("summary") or ()
        ]

    def _function_call_to_tool_use(self, item: dict[str, Any]) -> dict[str, Any]:
        arguments = self._json_object_from_arguments(item["arguments"])
        return {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": arguments}

    def _json_object_from_arguments(self, arguments: str) -> dict[str, Any]:
        try:
            parsed = json.loads(arguments) if arguments else {}
        except ValueError:
            raise InvalidAnswer(f"function call arguments are not JSON: {arguments[:100]!r}") from None
        if not isinstance(parsed, dict):
            raise InvalidAnswer(f"function call arguments are not a JSON object: {arguments[:100]!r}")
        return parsed

    def _stop_reason_from_response(self, response: NeMoGymResponse, has_tool_use: bool) -> str:
        details = response.incomplete_details
        reason = _STOP_REASONS.get((details and details.reason) or "")
        return reason or ("tool_use" if has_tool_use else "end_turn")


def _append_message(role: str, parts: list[dict[str, Any]], items: list[Any]) -> None:
    """Text and images of one run of blocks as one message; only the user's may be a list of parts."""
    if not parts:
        return
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    single = len(texts) == len(parts) and (role == "assistant" or len(parts) == 1)
    items.append({"type": "message", "role": role, "content": "".join(texts) if single else parts})
