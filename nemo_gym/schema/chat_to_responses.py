"""Chat Completions answers and histories as Responses objects."""

from typing import Any

from pydantic import BaseModel

from nemo_gym.schema import chat_tools, items
from nemo_gym.schema.chat_completion import NeMoGymChatCompletion, NeMoGymChoice
from nemo_gym.schema.chat_parts import assistant_texts, content_to_responses
from nemo_gym.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym.schema.chat_usage import usage_to_responses
from nemo_gym.schema.content import NeMoGymResponseOutputRefusal, NeMoGymResponseOutputText, NeMoGymSummary
from nemo_gym.schema.conversion import ConverterBase, token_bundle
from nemo_gym.schema.errors import InvalidAnswer, UnsupportedInDialect
from nemo_gym.schema.hosted_items import NeMoGymResponseCustomToolCall
from nemo_gym.schema.item_unions import NeMoGymResponseOutputItem
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.schema.wire import plain, read_key

_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Echoing these would put a request's value where a response holds something else.
_ECHOED = set(NeMoGymResponse.model_fields) - {"input", "model", "moderation", "conversation", "tools"}
# What a training engine says of its weights when it generated; nobody here reads it, and no engine gets it back.
_ENGINE_FIELDS = ("policy_epoch", "kv_cache_epoch", "num_evictions")
_SAME_IN_BOTH = (
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)


def _call_item(call: dict[str, Any]) -> Any:
    if call.get("type") == "custom":
        custom = call["custom"]
        return NeMoGymResponseCustomToolCall(
            type="custom_tool_call", id=call["id"], call_id=call["id"], name=custom["name"], input=custom["input"]
        )
    function = call["function"]
    return items.NeMoGymResponseFunctionToolCall(
        type="function_call",
        id=call["id"],
        call_id=call["id"],
        name=function["name"],
        arguments=function["arguments"],
        status="completed",
    )


def _with_tokens(item: BaseModel, bundle: dict[str, Any]) -> BaseModel:
    """The item in its training class. The arrays are taken as they are, by reference."""
    cls = items.TRAINING_ITEMS.get(type(item), type(item))
    fields = {**dict(item), **bundle}
    return cls.model_construct(_fields_set={*item.model_fields_set, *bundle}, **fields)


class AnswerConversion(ConverterBase):
    """Chat Completions → Responses."""

    def chat_completion_to_response(
        self,
        responses_create_params: NeMoGymResponseCreateParamsNonStreaming,
        chat_completion: NeMoGymChatCompletion,
        *,
        preserve_envelope_id: bool = False,
    ) -> NeMoGymResponse:
        """The first choice as a Responses object that echoes the request's parameters.

        With `preserve_envelope_id` the response keeps the backend's id. Raises ValueError if there is no choice.
        """
        if not chat_completion.choices:
            raise InvalidAnswer(f"chat completion {chat_completion.id!r} has no choices")
        choice = chat_completion.choices[0]
        output = self.postprocess_chat_response(choice)
        reason = _INCOMPLETE_REASONS.get(choice.finish_reason or "")
        envelope = {
            **_echo(responses_create_params),
            "id": chat_completion.id if preserve_envelope_id else self._new_id("resp"),
            "created_at": chat_completion.created,
            "model": responses_create_params.model or chat_completion.model,
            "object": "response",
            "output": output,
            "status": "incomplete" if reason else "completed",
            "usage": usage_to_responses(chat_completion.usage),
        }
        if reason:
            envelope["incomplete_details"] = {"reason": reason}
        if "native_finish_reason" in (choice.model_extra or {}):
            envelope["native_finish_reason"] = (choice.model_extra or {})["native_finish_reason"]
        return NeMoGymResponse.model_validate(envelope)

    def postprocess_chat_response(self, choice: NeMoGymChoice) -> list[NeMoGymResponseOutputItem]:
        """The output items of one choice."""
        message = dict(choice.message)
        message["tool_calls"] = [plain(call) for call in choice.message.tool_calls or ()]
        return self.postprocess_assistant_message_dict(message)

    def postprocess_assistant_message_dict(self, message_dict: dict[str, Any]) -> list[NeMoGymResponseOutputItem]:
        """The output items of one assistant message: reasoning, then message, then calls; tokens on the last."""
        content, refusal = assistant_texts(message_dict.get("content"))
        refusal += message_dict.get("refusal") or ""
        output: list[Any] = []
        if self.uses_reasoning_parser:
            spans, content = self._extract_reasoning_from_content(content)
            if spans:
                output.append(self._reasoning_item(spans))
        calls = [_call_item(call) for call in message_dict.get("tool_calls") or ()]
        if content or refusal or not (output or calls):
            output.append(self._message_item(content, refusal))
        output.extend(calls)
        bundle = token_bundle(message_dict) if self.return_token_id_information else {}
        if bundle:
            bundle |= {name: message_dict[name] for name in _ENGINE_FIELDS if name in message_dict}
            output[-1] = _with_tokens(output[-1], bundle)
        return output

    def _reasoning_item(self, texts: list[str]) -> items.NeMoGymResponseReasoningItem:
        summary = [NeMoGymSummary(type="summary_text", text=text) for text in texts]
        return items.NeMoGymResponseReasoningItem(id=self._new_id("rs"), type="reasoning", summary=summary)

    def _message_item(self, content: str, refusal: str) -> items.NeMoGymResponseOutputMessage:
        parts: list[Any] = []
        if content or not refusal:
            parts.append(NeMoGymResponseOutputText(type="output_text", text=content, annotations=[]))
        if refusal:
            parts.append(NeMoGymResponseOutputRefusal(type="refusal", refusal=refusal))
        return items.NeMoGymResponseOutputMessage(
            id=self._new_id("msg"), role="assistant", content=parts, status="completed", type="message"
        )

    def chat_completions_messages_to_responses_items(
        self, messages: list[dict[str, Any]]
    ) -> list[NeMoGymResponseOutputItem]:
        """A chat history as Responses items. Raises NotImplementedError for a role without a form there."""
        return [item for message in messages for item in self._message_to_items(message)]

    def _message_to_items(self, message: dict[str, Any]) -> list[Any]:
        content = message.get("content")
        match message["role"]:
            case "assistant":
                return self.postprocess_assistant_message_dict(message)
            case "user" | "system" | "developer" as role:
                easy = {"type": "message", "role": role, "content": content_to_responses(content)}
                return [items.NeMoGymEasyInputMessage.model_validate(easy)]
            case "tool":
                answer = {"call_id": message["tool_call_id"], "output": content_to_responses(content)}
                answer |= {"type": "function_call_output", "status": "completed"}
                return [items.NeMoGymFunctionCallOutput.model_validate(answer)]
            case role:
                raise UnsupportedInDialect(f"chat messages of role {role!r} have no form in the Responses API")

    def chat_completion_to_responses_create_params(
        self, chat_completion_create_params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymResponseCreateParamsNonStreaming:
        """A chat request as a Responses request. What has no form there (stop, seed, n, penalties) is left out."""
        chat = chat_completion_create_params.model_dump(exclude_unset=True, exclude_none=True)
        body: dict[str, Any] = {key: chat[key] for key in _SAME_IN_BOTH if key in chat}
        body["input"] = self.chat_completions_messages_to_responses_items(chat["messages"])
        if "max_completion_tokens" in chat:
            body["max_output_tokens"] = chat["max_completion_tokens"]
        if "reasoning_effort" in chat:
            body["reasoning"] = {"effort": chat["reasoning_effort"]}
        if "verbosity" in chat:
            body["text"] = {"verbosity": chat["verbosity"]}
        if "tools" in chat:
            body["tools"] = self._chat_completion_to_responses_tools(chat["tools"])
        if "tool_choice" in chat:
            body["tool_choice"] = self._chat_to_responses_tool_choice(chat["tool_choice"])
        return NeMoGymResponseCreateParamsNonStreaming.model_validate(body)

    @staticmethod
    def _tool_reference_to_responses(tool: dict[str, Any]) -> dict[str, Any]:
        return chat_tools.reference_to_responses(tool)

    @staticmethod
    def _chat_custom_tool_to_responses(tool: dict[str, Any]) -> dict[str, Any]:
        return chat_tools.custom_tool_to_responses(tool)

    def _chat_to_responses_tool_choice(self, tool_choice: Any) -> Any:
        return chat_tools.choice_to_responses(tool_choice)

    def _chat_completion_to_responses_tools(self, chat_completions_tools: list[Any] | None) -> list[dict[str, Any]]:
        return [chat_tools.tool_to_responses(tool) for tool in chat_completions_tools or ()]


def _echo(params: NeMoGymResponseCreateParamsNonStreaming) -> dict[str, Any]:
    """The request's parameters under the names a response shows them by."""
    echoed = params.model_dump(exclude_none=True, exclude_unset=True, include=_ECHOED)
    required = {"parallel_tool_calls": params.parallel_tool_calls, "tool_choice": params.tool_choice}
    return {**required, **echoed, "tools": [_without_nulls(plain(tool)) for tool in params.tools]}


def _without_nulls(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tool.items() if value is not None}


MODEL_GENERATED_TYPES = frozenset(
    {
        "apply_patch_call",
        "code_interpreter_call",
        "computer_call",
        "custom_tool_call",
        "file_search_call",
        "function_call",
        "image_generation_call",
        "local_shell_call",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
        "reasoning",
        "shell_call",
        "tool_search_call",
        "web_search_call",
    }
)


def _from_model(item: Any) -> bool:
    kind = read_key(item, "type")
    return kind in MODEL_GENERATED_TYPES or (kind in ("message", None) and read_key(item, "role") == "assistant")


def split_responses_input_output_items(
    items: list[NeMoGymResponseOutputItem],
) -> tuple[list[NeMoGymResponseOutputItem], list[NeMoGymResponseOutputItem]]:
    """A trajectory cut where the model first speaks: (input, output)."""
    first = next((index for index, item in enumerate(items) if _from_model(item)), len(items))
    return items[:first], items[first:]
