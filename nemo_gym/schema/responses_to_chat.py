"""A Responses request as a Chat Completions request."""

from typing import Any, cast

from pydantic import BaseModel, ValidationError

from nemo_gym.schema import chat_tools
from nemo_gym.schema.chat_history import can_be_read_in_place, chat_messages
from nemo_gym.schema.chat_parts import (
    assistant_texts,
    content_to_chat,
    refuse_namespace,
    refuse_phase,
    tool_output_to_chat,
)
from nemo_gym.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym.schema.conversion import ConverterBase, ResponsesConverterState
from nemo_gym.schema.errors import UnsupportedInDialect, reading
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.schema.token_fields import TOKEN_METADATA_FIELDS, TokenIDLogProbMixin

# What a component may override to form messages its own way.
_HOOKS = (
    "_messages",
    "_format_item",
    "_format_message",
    "_buffer_assistant_message",
    "_format_reasoning",
    "_format_function_call",
    "_format_function_call_output",
    "_wrap_reasoning_in_think_tags",
)
_WITHOUT_CHAT_FORM = (
    "background",
    "context_management",
    "conversation",
    "include",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "truncation",
)


def _request_data(params: NeMoGymResponseCreateParamsNonStreaming) -> dict[str, Any]:
    """What the caller set, without nulls. Input items stay objects, and tools are not copied: both are long."""
    data = params.model_dump(exclude_unset=True, exclude_none=True, exclude={"input", "tools"})
    return {**data, "input": params.input, "tools": params.tools}


def _item_data(item: BaseModel) -> dict[str, Any]:
    """One item as a dict; token arrays by reference."""
    if isinstance(item, TokenIDLogProbMixin):
        data = item.model_dump(exclude_unset=True, exclude_none=True, exclude=set(TOKEN_METADATA_FIELDS))
        data.update({key: value for key, value in item if key in TOKEN_METADATA_FIELDS and value is not None})
    else:
        data = item.model_dump(exclude_unset=True, exclude_none=True)
    if "type" not in data and "role" not in data:
        data["type"] = getattr(item, "type", None)
    return data


def _response_format(form: dict[str, Any]) -> dict[str, Any] | None:
    match form["type"]:
        case "text":
            return None
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            keys = ("name", "schema", "strict", "description")
            return {"type": "json_schema", "json_schema": {key: form[key] for key in keys if key in form}}
        case kind:
            raise UnsupportedInDialect(f"text.format of type {kind!r} has no form in Chat Completions")


def _plain_text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _with_instructions(instructions: str, messages: list[Any]) -> list[Any]:
    """One system message of the instructions and every system or developer message that opens the input."""
    opening = 0
    while opening < len(messages) and messages[opening]["role"] in ("system", "developer"):
        opening += 1
    texts = [instructions, *(_plain_text(message["content"]) for message in messages[:opening])]
    return [{"content": "\n\n".join(texts), "role": "system"}, *messages[opening:]]


def _validated(body: dict[str, Any]) -> NeMoGymChatCompletionCreateParamsNonStreaming:
    """The checked request. Token arrays were checked with the items they came from and are not scanned again."""
    bundles = [
        {key: message.pop(key) for key in TOKEN_METADATA_FIELDS & message.keys()} for message in body["messages"]
    ]
    params = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(body)
    for message, bundle in zip(params.messages, bundles, strict=True):
        cast(dict[str, Any], message).update(bundle)
    return params


def _has_parts(message: dict[str, Any]) -> bool:
    return isinstance(message["content"], list)


def _validated_parts(body: dict[str, Any]) -> NeMoGymChatCompletionCreateParamsNonStreaming:
    """The checked request, whose messages come from checked items: only their lists of parts can be wrong in chat."""
    messages: list[Any] = body["messages"]
    with_parts = [message for message in messages if _has_parts(message)]
    try:
        params = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate({**body, "messages": with_parts})
    except ValidationError:
        return _validated(body)  # which tells the place of the message among all
    checked = iter(params.messages)
    params.messages = [next(checked) if _has_parts(message) else message for message in messages]
    return params


class RequestConversion(ConverterBase):
    """Responses → Chat Completions."""

    def responses_to_chat_completion_create_params(
        self, responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymChatCompletionCreateParamsNonStreaming:
        """The same request for a chat backend.

        Raises NotImplementedError naming what chat can't express, ValueError for a tool choice without tools.
        """
        with reading("the Chat Completions form of the request"):
            return self._convert(_request_data(responses_create_params))

    def _convert(self, data: dict[str, Any]) -> NeMoGymChatCompletionCreateParamsNonStreaming:
        refused = [field for field in _WITHOUT_CHAT_FORM if field in data]
        if refused:
            raise UnsupportedInDialect(f"no form in Chat Completions for: {', '.join(refused)}")
        request_input = data.pop("input")
        in_place = self._can_be_read_in_place(request_input)
        if in_place:
            messages = chat_messages(request_input, with_tokens=self.return_token_id_information)
        else:
            messages = self._messages(request_input)
        if "instructions" in data:
            messages = _with_instructions(data.pop("instructions"), messages)
        self._rename(data)
        self._convert_tools(data)
        body = {"messages": messages, **data}
        return _validated_parts(body) if in_place else _validated(body)

    def _can_be_read_in_place(self, request_input: Any) -> bool:
        """True if the items are all our own and no subclass has its own way to form messages."""
        cls, shipped = type(self), RequestConversion
        return (
            isinstance(request_input, list)
            and all(getattr(cls, hook) is getattr(shipped, hook) for hook in _HOOKS)
            and can_be_read_in_place(request_input)
        )

    def _messages(self, request_input: Any) -> list[Any]:
        if isinstance(request_input, str):
            return [{"role": "user", "content": [{"type": "text", "text": request_input}]}]
        state = ResponsesConverterState(return_token_id_information=self.return_token_id_information)
        for item in request_input:
            self._format_item(_item_data(item), state)
        state.flush_assistant()
        return list(state.messages)

    def _format_item(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        match m.get("type", "message"):
            case "message":
                self._format_message(m, state)
            case "reasoning":
                self._format_reasoning(m, state)
            case "function_call":
                self._format_function_call(m, state)
            case "custom_tool_call":
                self._format_custom_tool_call(m, state)
            case "function_call_output" | "custom_tool_call_output":
                self._format_function_call_output(m, state)
            case kind:
                raise UnsupportedInDialect(f"input items of type {kind!r} have no form in Chat Completions")

    def _format_message(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        refuse_phase(m.get("phase"))
        role = m.get("role", "assistant")
        if role == "assistant":
            self._buffer_assistant_message(m, state)
            return
        state.flush_assistant()
        if role == "tool":
            state.append({"role": "tool", "content": m.get("content") or "", "tool_call_id": m.get("tool_call_id")})
        else:
            state.append({"role": role, "content": content_to_chat(m["content"])})

    def _buffer_assistant_message(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        reasoning = m.get("reasoning_content") or m.get("reasoning")
        if isinstance(reasoning, str):
            state.say(self._wrap_reasoning_in_think_tags([reasoning]))
        text, refusal = assistant_texts(m.get("content"))
        state.say(text, refusal + (m.get("refusal") or ""))
        state.tool_calls_buffer.extend(m.get("tool_calls") or ())
        state.buffer_tokens(m)

    def _format_reasoning(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        state.say(self._wrap_reasoning_in_think_tags([part["text"] for part in m.get("summary") or ()]))
        state.buffer_tokens(m)

    def _format_function_call(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        refuse_namespace(m.get("namespace"))
        function = {"name": m["name"], "arguments": m["arguments"]}
        state.call({"id": m["call_id"], "type": "function", "function": function})
        state.buffer_tokens(m)

    def _format_custom_tool_call(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        custom = {"name": m["name"], "input": m["input"]}
        state.call({"id": m["call_id"], "type": "custom", "custom": custom})
        state.buffer_tokens(m)

    def _format_function_call_output(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        state.flush_assistant()
        state.append({"role": "tool", "content": tool_output_to_chat(m["output"]), "tool_call_id": m["call_id"]})

    def _rename(self, data: dict[str, Any]) -> None:
        """Fields that chat knows under another name or in another shape."""
        if "max_output_tokens" in data:
            data["max_tokens"] = data.pop("max_output_tokens")
        reasoning = data.pop("reasoning", {})
        if "effort" in reasoning:
            data["reasoning_effort"] = reasoning.pop("effort")
        if reasoning:
            raise UnsupportedInDialect(f"no form in Chat Completions for reasoning: {', '.join(sorted(reasoning))}")
        text = data.pop("text", {})
        response_format = _response_format(text["format"]) if "format" in text else None
        if response_format:
            data["response_format"] = response_format
        if "verbosity" in text:
            data["verbosity"] = text["verbosity"]

    def _convert_tools(self, data: dict[str, Any]) -> None:
        tools = data.pop("tools", None)
        choice = data.pop("tool_choice", None)
        if not tools:
            chat_tools.refuse_choice_without_tools(choice)
            data.pop("parallel_tool_calls", None)
            return
        data["tools"] = [chat_tools.tool_to_chat(tool) for tool in tools]
        if choice is not None:
            data["tool_choice"] = self._responses_to_chat_tool_choice(choice)

    @staticmethod
    def _tool_reference_to_chat(tool: dict[str, Any]) -> dict[str, Any]:
        return chat_tools.reference_to_chat(tool)

    @staticmethod
    def _responses_custom_tool_to_chat(tool: dict[str, Any]) -> dict[str, Any]:
        return chat_tools.custom_tool_to_chat(tool)

    def _responses_to_chat_tool_choice(self, tool_choice: Any) -> Any:
        return chat_tools.choice_to_chat(tool_choice)
