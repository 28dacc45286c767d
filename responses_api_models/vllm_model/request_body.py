"""From a chat request to the body an engine gets, in the order in which later steps win."""

from __future__ import annotations

import json
import logging
from typing import Any

from responses_api_models.openai_model.pass_through import drop_empty_tools
from responses_api_models.vllm_model.audio import attach_audio
from responses_api_models.vllm_model.errors import RefusedRequest
from responses_api_models.vllm_model.reasoning import separate_reasoning
from responses_api_models.vllm_model.settings import VLLMModelConfig

Body = dict[str, Any]

_logger = logging.getLogger("nemo_gym.vllm_model")


class EngineBody:
    """Makes engine bodies by one config; the request's own dicts are left as they are."""

    def __init__(self, config: VLLMModelConfig) -> None:
        self._config = config
        self._warned_of_template_kwargs = False

    def of(self, request: Body) -> Body:
        """The body for a chat request given as plain data. May read audio files. Raises RefusedRequest."""
        config = self._config
        body = {**request, "messages": [dict(message) for message in request["messages"]], "model": config.model}
        drop_empty_tools(body)
        _drop_strict(body)
        self._adapt_messages(body)
        self._set_template_kwargs(body)
        if config.continue_final_assistant_message and ends_with_assistant(body):
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        self._ask_for_tokens(body)
        if body.get("top_logprobs", 0) is None:
            del body["top_logprobs"]
        body = self.extra_body(request) | body
        attach_audio(body, config.audio_root)
        body |= config.sampling_overrides or {}
        if config.return_token_id_information and (body.get("n") or 1) > 1:
            raise RefusedRequest("n > 1 isn't possible with return_token_id_information: ask for one answer at a time")
        return body

    def extra_body(self, request: Body) -> Body:
        """What lies under the request: the config's extra body, then the one in its metadata."""
        return {**(self._config.extra_body or {}), **_json_in_metadata(request, "extra_body")}

    def _adapt_messages(self, body: Body) -> None:
        config = self._config
        for message in body["messages"]:
            role = message.get("role")
            if role == "developer" and config.replace_developer_role_with_system:
                message["role"] = "system"
            separates = config.uses_reasoning_parser and not config.preserve_reasoning_in_assistant_content
            if role == "assistant" and separates:
                separate_reasoning(message, config.reasoning_field, resend=config.uses_interleaved_reasoning)

    def _set_template_kwargs(self, body: Body) -> None:
        asked = body.pop("chat_template_kwargs", None) or {}
        if asked and not self._config.forward_request_chat_template_kwargs:
            self._warn_of_template_kwargs()
            asked = {}
        kwargs = {
            **(self._config.chat_template_kwargs or {}),
            **asked,
            **_json_in_metadata(body, "chat_template_kwargs"),
        }
        if kwargs:
            body["chat_template_kwargs"] = kwargs

    def _warn_of_template_kwargs(self) -> None:
        if not self._warned_of_template_kwargs:
            self._warned_of_template_kwargs = True
            _logger.warning(
                "chat_template_kwargs of requests are dropped: set forward_request_chat_template_kwargs to true to "
                "send them on."
            )

    def _ask_for_tokens(self, body: Body) -> None:
        if not self._config.return_token_id_information:
            return
        body |= {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
        if self._config.request_prompt_and_generation_token_ids:
            body["return_token_ids"] = True


def ends_with_assistant(body: Body) -> bool:
    """Whether the history's last word is the model's."""
    return bool(body["messages"]) and body["messages"][-1].get("role") == "assistant"


def ends_with_nothing_said(body: Body) -> bool:
    """Whether the history ends in an assistant message without text or calls."""
    if not ends_with_assistant(body):
        return False
    last = body["messages"][-1]
    content = last.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or part.get("refusal") or "") for part in content)
    return not content and not last.get("tool_calls") and not last.get("refusal")


def _drop_strict(body: Body) -> None:
    tools = body.get("tools")
    if tools:
        body["tools"] = [_without_strict(tool) for tool in tools]


def _without_strict(tool: Body) -> Body:
    function = tool.get("function")
    if not isinstance(function, dict) or "strict" not in function:
        return tool
    return {**tool, "function": {key: value for key, value in function.items() if key != "strict"}}


def _json_in_metadata(body: Body, key: str) -> Body:
    text = (body.get("metadata") or {}).get(key)
    if not text:
        return {}
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise RefusedRequest(f"metadata.{key} must be a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise RefusedRequest(f"metadata.{key} must be a JSON object, not {type(value).__name__}")
    return value
