"""A Messages backend behind a Gym model server: our request out, its answer in."""

import json
import time
from typing import Any
from uuid import uuid4

from nemo_gym.schema import items
from nemo_gym.schema.anthropic_ingress import MessagesIngress
from nemo_gym.schema.content import NeMoGymResponseOutputText, NeMoGymSummary
from nemo_gym.schema.errors import InvalidContent, UnsupportedInDialect
from nemo_gym.schema.images import parse_data_url
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.schema.usage import NeMoGymResponseUsage
from nemo_gym.schema.wire import plain

_EMPTY_SCHEMA = {"type": "object", "properties": {}}
_SAMPLING_PARAMS = ("temperature", "top_p", "top_k")
_MODELS_WITHOUT_SAMPLING = ("claude-opus-4-7", "claude-opus-4-8")
_INCOMPLETE_REASONS = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}
_ECHOED = ("parallel_tool_calls", "tool_choice", "tools", "instructions", "max_output_tokens", "metadata")


class MessagesEgress(MessagesIngress):
    """Responses request → Messages request, and Messages answer → Responses answer."""

    def responses_to_anthropic(
        self,
        body: NeMoGymResponseCreateParamsNonStreaming,
        model: str,
        max_tokens: int,
        thinking: dict[str, Any] | None,
        thinking_budget_tokens: int | None,
        extra_body: dict[str, Any],
    ) -> dict[str, Any]:
        """The request for an Anthropic backend, over what `extra_body` sets; `max_tokens` is the default.

        Raises NotImplementedError for what has no form there, ValueError for contradictory or invalid settings.
        """
        data = body.model_dump(exclude_unset=True, exclude_none=True, exclude={"input"})
        messages: list[dict[str, Any]] = []
        system_parts: list[str] = [data["instructions"]] if data.get("instructions") else []
        for item in self._normalize_input(body.input):
            self._append_item(item, messages, system_parts)
        request = {**extra_body, "model": model, "messages": messages}
        request["max_tokens"] = data.get("max_output_tokens", max_tokens)
        if system_parts:
            request["system"] = self._system_parts_to_anthropic_blocks(system_parts)
        self._copy_sampling_params(data, request)
        self._copy_tools(data, request)
        self._copy_tool_choice(data, request)
        self._copy_thinking_params(request, thinking, thinking_budget_tokens)
        self._validate_sampling_params_for_model(model, request)
        return request

    def _normalize_input(self, response_input: Any) -> list[dict[str, Any]]:
        if isinstance(response_input, str):
            return [{"type": "message", "role": "user", "content": response_input}]
        return [{"type": getattr(item, "type", None), **plain(item)} for item in response_input]

    def _append_item(self, item: dict[str, Any], messages: list[dict[str, Any]], system_parts: list[str]) -> None:
        match item.get("type"):
            case "message":
                self._append_message_item(item, messages, system_parts)
            case "reasoning":
                self._append_content(messages, "assistant", self._reasoning_item_to_anthropic_blocks(item))
            case "function_call":
                self._append_content(messages, "assistant", [self._function_call_to_tool_use(item)])
            case "function_call_output":
                result = self._tool_result(item)
                self._append_content(messages, "user", [result])
            case kind:
                raise UnsupportedInDialect(f"input items of type {kind!r} have no form in the Messages API")

    def _append_message_item(
        self, item: dict[str, Any], messages: list[dict[str, Any]], system_parts: list[str]
    ) -> None:
        role = item.get("role", "assistant")
        if role in ("system", "developer"):
            system_parts.append(self._content_to_text(item["content"]))
        else:
            self._append_content(messages, role, self._content_to_anthropic_blocks(item["content"], role))

    def _append_content(self, messages: list[dict[str, Any]], role: str, content_blocks: list[dict[str, Any]]) -> None:
        if not content_blocks:
            return
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(content_blocks)
        else:
            messages.append({"role": role, "content": content_blocks})

    def _content_to_anthropic_blocks(self, content: Any, role: str) -> list[dict[str, Any]]:
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content else []
        blocks = [self._part_to_anthropic_block(part, role) for part in content]
        return [block for block in blocks if block.get("text") != ""]

    def _part_to_anthropic_block(self, part: dict[str, Any], role: str) -> dict[str, Any]:
        kind = part.get("type", "refusal" if "refusal" in part else "output_text")
        match kind:
            case "input_text" | "output_text":
                return {"type": "text", "text": part["text"]}
            case "refusal":
                return {"type": "text", "text": part["refusal"]}
            case "input_image" if role == "user":
                return self._input_image_to_anthropic_block(part)
            case _:
                raise UnsupportedInDialect(f"{role} content of type {kind!r} has no form in the Messages API")

    def _input_image_to_anthropic_block(self, part: dict[str, Any]) -> dict[str, Any]:
        url = part.get("image_url")
        if not isinstance(url, str):
            raise InvalidContent("an image for the Messages API needs an image_url with a base64 data URL")
        media_type, data = self._parse_image_data_url(url)
        return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}

    def _parse_image_data_url(self, image_url: str) -> tuple[str, str]:
        return parse_data_url(image_url)

    def _content_to_text(self, content: Any) -> str:
        if isinstance(content, str):
            return content
        for part in content:
            if "text" not in part:
                raise UnsupportedInDialect(f"system content of type {part.get('type')!r} is not supported")
        return "".join(part["text"] for part in content)

    def _system_parts_to_anthropic_blocks(self, system_parts: list[str]) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text} for text in system_parts if text]

    def _tool_result(self, item: dict[str, Any]) -> dict[str, Any]:
        output = item["output"]
        content = output if isinstance(output, str) else self._content_to_anthropic_blocks(output, "user")
        return {"type": "tool_result", "tool_use_id": item["call_id"], "content": content}

    def _copy_sampling_params(self, body_dict: dict[str, Any], anthropic_body: dict[str, Any]) -> None:
        anthropic_body.update({key: body_dict[key] for key in ("temperature", "top_p") if key in body_dict})

    def _copy_tools(self, body_dict: dict[str, Any], anthropic_body: dict[str, Any]) -> None:
        tools = body_dict.get("tools")
        if tools:
            anthropic_body["tools"] = [self._tool_to_anthropic(tool) for tool in tools]

    def _tool_to_anthropic(self, tool: dict[str, Any]) -> dict[str, Any]:
        if tool.get("type") != "function":
            raise UnsupportedInDialect(f"tools of type {tool.get('type')!r} have no form in the Messages API")
        described = {"description": tool["description"]} if tool.get("description") else {}
        return {"name": tool["name"], **described, "input_schema": tool.get("parameters") or _EMPTY_SCHEMA}

    def _copy_tool_choice(self, body_dict: dict[str, Any], anthropic_body: dict[str, Any]) -> None:
        if not body_dict.get("tools"):
            return
        choice = self._choice_to_anthropic(body_dict.get("tool_choice"))
        if body_dict.get("parallel_tool_calls") is False and (choice is None or choice["type"] != "none"):
            choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
        if choice is not None:
            anthropic_body["tool_choice"] = choice

    def _choice_to_anthropic(self, choice: Any) -> dict[str, Any] | None:
        match choice:
            case None:
                return None
            case "auto" | "none":
                return {"type": choice}
            case "required":
                return {"type": "any"}
            case {"type": "function", "name": name}:
                return {"type": "tool", "name": name}
            case _:
                raise UnsupportedInDialect(f"tool_choice {choice!r} has no form in the Messages API")

    def _copy_thinking_params(
        self, anthropic_body: dict[str, Any], thinking: dict[str, Any] | None, thinking_budget_tokens: int | None
    ) -> None:
        given = {
            "extra_body.thinking": anthropic_body.get("thinking"),
            "thinking": thinking,
            "thinking_budget_tokens": thinking_budget_tokens,
        }
        places = [place for place, value in given.items() if value is not None]
        if len(places) > 1:
            raise InvalidContent(f"thinking is configured in several places: {', '.join(places)}; keep one")
        if thinking is not None:
            anthropic_body["thinking"] = thinking
        if thinking_budget_tokens is not None:
            anthropic_body["thinking"] = {"type": "enabled", "budget_tokens": thinking_budget_tokens}

    def _validate_sampling_params_for_model(self, model: str, anthropic_body: dict[str, Any]) -> None:
        given = [key for key in _SAMPLING_PARAMS if anthropic_body.get(key) is not None]
        if given and self._model_disallows_sampling_params(model):
            raise InvalidContent(f"{model} does not accept {', '.join(given)}; remove it from the request")

    def _model_disallows_sampling_params(self, model: str) -> bool:
        return any(name in model for name in _MODELS_WITHOUT_SAMPLING)

    def anthropic_to_responses(
        self, anthropic_response: dict[str, Any], request_body: NeMoGymResponseCreateParamsNonStreaming, model: str
    ) -> NeMoGymResponse:
        """The backend's message as a response that echoes the request's parameters.

        Raises NotImplementedError for blocks without a form there.
        """
        echoed = {key: value for key in _ECHOED if (value := getattr(request_body, key)) is not None}
        details = self._incomplete_details_from_stop_reason(anthropic_response.get("stop_reason"))
        return NeMoGymResponse.model_validate(
            {
                **echoed,
                "id": anthropic_response["id"],
                "created_at": int(time.time()),
                "model": model,
                "object": "response",
                "output": self._anthropic_content_to_output_items(anthropic_response.get("content") or []),
                "usage": self._usage_to_responses_usage(anthropic_response.get("usage")),
                **({"incomplete_details": details} if details else {}),
            }
        )

    def _anthropic_content_to_output_items(self, content: list[dict[str, Any]]) -> list[Any]:
        output: list[Any] = []
        pending_text: list[str] = []
        for block in content:
            if block.get("type") == "text":
                pending_text.append(block["text"])
                continue
            self._flush_text_output(pending_text, output)
            output.append(_output_item(block))
        self._flush_text_output(pending_text, output)
        if not output:
            output.append(_text_message(""))
        return output

    def _flush_text_output(self, pending_text: list[str], output: list[Any]) -> None:
        if pending_text:
            output.append(_text_message("".join(pending_text)))
            pending_text.clear()

    def _incomplete_details_from_stop_reason(self, stop_reason: str | None) -> dict[str, str] | None:
        reason = _INCOMPLETE_REASONS.get(stop_reason or "")
        return {"reason": reason} if reason else None

    def _usage_to_responses_usage(self, usage: dict[str, Any] | None) -> NeMoGymResponseUsage | None:
        if usage is None:
            return None
        given, generated = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
        return NeMoGymResponseUsage.model_validate(
            {
                "input_tokens": given,
                "input_tokens_details": {"cached_tokens": usage.get("cache_read_input_tokens")},
                "output_tokens": generated,
                "output_tokens_details": {"reasoning_tokens": None},
                "total_tokens": given + generated,
            }
        )


def _text_message(text: str) -> items.NeMoGymResponseOutputMessage:
    part = NeMoGymResponseOutputText(type="output_text", text=text, annotations=[])
    return items.NeMoGymResponseOutputMessage(
        id=f"msg_{uuid4().hex}", role="assistant", content=[part], status="completed", type="message"
    )


def _output_item(block: dict[str, Any]) -> Any:
    match block.get("type"):
        case "thinking":
            reasoning = {"id": f"rs_{uuid4().hex}", "type": "reasoning"}
            summary = [NeMoGymSummary(type="summary_text", text=block["thinking"])]
            signature = {"encrypted_content": block["signature"]} if block.get("signature") else {}
            return items.NeMoGymResponseReasoningItem.model_validate({**reasoning, "summary": summary, **signature})
        case "tool_use":
            return items.NeMoGymResponseFunctionToolCall(
                type="function_call",
                id=block["id"],
                call_id=block["id"],
                name=block["name"],
                arguments=json.dumps(block.get("input") or {}),
                status="completed",
            )
        case kind:
            raise UnsupportedInDialect(f"message blocks of type {kind!r} have no form in the Responses API")
