"""The text and the calls of a response, by each of the rules that environments go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nemo_gym.schema.items import NeMoGymResponseFunctionToolCall
from nemo_gym.schema.response import NeMoGymResponse


def all_text(response: NeMoGymResponse) -> str:
    """Every `output_text` of every message, joined without a separator."""
    return response.output_text


def assistant_text(response: NeMoGymResponse) -> str:
    """The texts of all assistant messages, joined by newlines and stripped."""
    texts = [text for message in _messages(response) for text in _texts(message)]
    return "\n".join(texts).strip()


def last_assistant_text(response: NeMoGymResponse) -> str:
    """The texts of the last assistant message, joined by newlines and stripped; empty without one."""
    last = next(reversed(list(_messages(response))), None)
    return "\n".join(_texts(last)).strip() if last is not None else ""


def assistant_texts(response: NeMoGymResponse) -> list[str]:
    """For each assistant message its texts, joined by newlines and stripped; empty ones too."""
    return ["\n".join(_texts(message)).strip() for message in _messages(response)]


def last_item_text(response: NeMoGymResponse) -> str:
    """The first text of the last item if that is a message, else nothing: a reply cut while reasoning says nothing."""
    last = response.output[-1] if response.output else None
    if getattr(last, "type", None) != "message":
        return ""
    return next(_texts(last), "")


def closing_text(response: NeMoGymResponse) -> str:
    """The last text of the last item if that is a message, else nothing: where a judge's verdict stands."""
    last = response.output[-1] if response.output else None
    texts = list(_texts(last)) if getattr(last, "type", None) == "message" else []
    return texts[-1] if texts else ""


def function_calls(response: NeMoGymResponse) -> list[NeMoGymResponseFunctionToolCall]:
    """The calls of a response in order."""
    return [item for item in response.output if isinstance(item, NeMoGymResponseFunctionToolCall)]


def call_outputs(response: NeMoGymResponse) -> list[str]:
    """What the tools answered, in order, as the model read it. It comes with the response: don't trust it with a
    reward that the session can tell."""
    outputs = [item for item in response.output if getattr(item, "type", None) == "function_call_output"]
    return [
        text if isinstance(text := _field(item, "output"), str) else "\n".join(_texts({"content": text}))
        for item in outputs
    ]


def last_user_text(messages: Any) -> str:
    """What the last user message of a request's `input` says, its text parts joined by newlines; the whole input where
    that is a text."""
    if isinstance(messages, str):
        return messages
    users = [message for message in messages or () if _field(message, "role") == "user"]
    return "\n".join(_texts(users[-1])) if users else ""


def _messages(response: NeMoGymResponse) -> Iterator[Any]:
    for item in response.output:
        if getattr(item, "type", None) == "message" and getattr(item, "role", None) == "assistant":
            yield item


def _texts(message: Any) -> Iterator[str]:
    content = _field(message, "content")
    for part in [content] if isinstance(content, str) else content or ():
        text = part if isinstance(part, str) else _field(part, "text")
        if isinstance(text, str):
            yield text


def _field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
