"""What both directions of the Responses ⇄ Chat Completions conversion share."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import BaseModel, Field

from nemo_gym.schema.chat_messages import (
    NeMoGymChatCompletionMessageParam,
    NeMoGymChatCompletionMessageToolCallParam,
)
from nemo_gym.schema.token_fields import REQUIRED_TOKEN_METADATA_FIELDS, TokenIDLogProbMixin, require_whole_bundle

_TOKEN_FIELDS = (*sorted(REQUIRED_TOKEN_METADATA_FIELDS), "routed_experts")


def token_bundle(data: Mapping[str, Any]) -> dict[str, Any]:
    """The token fields of an item or message, by reference; empty if it has none.

    Raises ValueError on half a bundle.
    """
    whole = require_whole_bundle(data)
    return {field: whole[field] for field in _TOKEN_FIELDS if whole.get(field) is not None}


def wrap_in_think_tags(texts: list[str]) -> str:
    """Reasoning as chat text."""
    return "".join([f"<think>{text}</think>" for text in texts])


class AssistantBuffer:
    """Puts consecutive things the model said into one chat message. Its subclasses hold the fields, each their way."""

    if TYPE_CHECKING:
        return_token_id_information: bool
        messages: Any
        content_buffer: str
        refusal_buffer: str
        tool_calls_buffer: Any
        assistant_item_buffered: bool
        token_information: TokenIDLogProbMixin | None

    def say(self, text: str, refusal: str = "") -> None:
        """Adds text, reasoning included, to the assistant message under construction."""
        self.content_buffer += text
        if refusal:
            self.refusal_buffer += refusal
        self.assistant_item_buffered = True

    def call(self, call: Any) -> None:
        """Adds a tool call to the assistant message under construction."""
        self.tool_calls_buffer.append(call)
        self.assistant_item_buffered = True

    def buffer_tokens(self, item: Mapping[str, Any]) -> None:
        """Keeps the tokens of an assistant item if they are wanted; the latest item's win."""
        bundle = token_bundle(item) if self.return_token_id_information else {}
        if bundle:
            self.token_information = TokenIDLogProbMixin.model_construct(**bundle)

    def flush_assistant(self) -> None:
        """Ends the assistant message under construction, if there is one."""
        if not self.assistant_item_buffered:
            return
        message: dict[str, Any] = {"role": "assistant", "content": self.content_buffer or None}
        if self.refusal_buffer:
            message["refusal"] = self.refusal_buffer
        if self.tool_calls_buffer:
            message["tool_calls"] = self.tool_calls_buffer
        if self.return_token_id_information and self.token_information is not None:
            message.update(token_bundle(dict(self.token_information)))
        self.messages.append(message)
        self.content_buffer = self.refusal_buffer = ""
        self.tool_calls_buffer = []
        self.assistant_item_buffered = False
        self.token_information = None


class ResponsesConverterState(BaseModel, AssistantBuffer):
    """Chat messages so far, and the assistant message under construction."""

    return_token_id_information: bool
    messages: list[NeMoGymChatCompletionMessageParam] = Field(default_factory=list)
    content_buffer: str = ""
    refusal_buffer: str = ""
    tool_calls_buffer: list[NeMoGymChatCompletionMessageToolCallParam] = Field(default_factory=list)
    assistant_item_buffered: bool = False
    token_information: TokenIDLogProbMixin | None = None

    def append(self, message: dict[str, Any]) -> None:
        """Adds a finished chat message."""
        self.messages.append(cast(NeMoGymChatCompletionMessageParam, message))


class ConverterBase(BaseModel):
    """Settings of a converter, and how it writes reasoning into chat text."""

    return_token_id_information: bool
    uses_reasoning_parser: bool = True

    THINK_TAG_PATTERN: ClassVar[re.Pattern[str]] = re.compile(r"<think>((?:[^<]++|<(?!/think>))*+)</think>")

    @abstractmethod
    def _new_id(self, prefix: str) -> str:
        """A fresh id for one generated item."""

    @staticmethod
    def _wrap_reasoning_in_think_tags(texts: list[str]) -> str:
        return wrap_in_think_tags(texts)

    @classmethod
    def _parse_think_tags(cls, content: str) -> tuple[list[str], str]:
        """The texts of all closed think spans, and the content without them. An unclosed span stays content."""
        kept, *spans_and_rest = cls.THINK_TAG_PATTERN.split(content)
        return spans_and_rest[::2], kept + "".join(spans_and_rest[1::2])

    def _extract_reasoning_from_content(self, content: str) -> tuple[list[str], str]:
        return self._parse_think_tags(content)
