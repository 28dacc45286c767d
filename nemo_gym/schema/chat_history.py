"""A history of our own items as chat messages: what a converter's hooks would make of them, in one pass.

Histories are long and sent again with every turn, so items are read where they are instead of being dumped first.
"""

from collections.abc import Callable, Iterable
from typing import Any

from nemo_gym.schema import items
from nemo_gym.schema.chat_parts import (
    assistant_texts,
    content_to_chat,
    refuse_namespace,
    refuse_phase,
    tool_output_to_chat,
)
from nemo_gym.schema.content import NeMoGymResponseOutputText
from nemo_gym.schema.conversion import AssistantBuffer, wrap_in_think_tags


class _Draft(AssistantBuffer):
    """The state of the conversion without the cost of a model's assignments."""

    def __init__(self, return_token_id_information: bool) -> None:
        self.return_token_id_information = return_token_id_information
        self.messages: list[Any] = []
        self.content_buffer = self.refusal_buffer = ""
        self.tool_calls_buffer = []
        self.assistant_item_buffered = False
        self.token_information = None


def _add_message(item: Any, draft: _Draft) -> None:
    draft.flush_assistant()
    draft.messages.append({"content": content_to_chat(item.content), "role": item.role})


def _add_easy_message(item: Any, draft: _Draft) -> None:
    refuse_phase(item.phase)
    if item.role == "assistant":
        draft.say(*assistant_texts(item.content))
    else:
        _add_message(item, draft)


def _add_output_message(item: Any, draft: _Draft) -> None:
    refuse_phase(item.phase)
    text = refusal = ""
    for part in item.content:
        if isinstance(part, NeMoGymResponseOutputText):
            text += part.text
        else:
            refusal += part.refusal
    draft.say(text, refusal)


def _add_reasoning(item: Any, draft: _Draft) -> None:
    draft.say(wrap_in_think_tags([part.text for part in item.summary]))


def _add_function_call(item: Any, draft: _Draft) -> None:
    refuse_namespace(item.namespace)
    draft.call({"id": item.call_id, "function": {"arguments": item.arguments, "name": item.name}, "type": "function"})


def _add_function_call_output(item: Any, draft: _Draft) -> None:
    draft.flush_assistant()
    output = tool_output_to_chat(item.output)
    draft.messages.append({"content": output, "role": "tool", "tool_call_id": item.call_id})


_ADD: dict[type, Callable[[Any, _Draft], None]] = {
    items.NeMoGymEasyInputMessage: _add_easy_message,
    items.NeMoGymMessage: _add_message,
    items.NeMoGymResponseOutputMessage: _add_output_message,
    items.NeMoGymResponseFunctionToolCall: _add_function_call,
    items.NeMoGymFunctionCallOutput: _add_function_call_output,
    items.NeMoGymResponseReasoningItem: _add_reasoning,
}
_ADD |= {variant: _ADD[plain] for plain, variant in items.TRAINING_ITEMS.items()}


def can_be_read_in_place(history: Iterable[Any]) -> bool:
    """True if all items are of our own classes and none has fields beyond theirs."""
    return all(type(item) in _ADD and not item.__pydantic_extra__ for item in history)


def chat_messages(history: Iterable[Any], *, with_tokens: bool) -> list[Any]:
    """The chat messages of a history that can be read in place.

    Their text is as valid as the items are; a list of parts may hold what its role can't have in chat. Raises
    UnsupportedInDialect for what has no form there.
    """
    draft = _Draft(with_tokens)
    for item in history:
        _ADD[type(item)](item, draft)
        if with_tokens and isinstance(item, items.TrainingItem) and draft.assistant_item_buffered:
            draft.buffer_tokens(item.__dict__)
    draft.flush_assistant()
    return draft.messages
