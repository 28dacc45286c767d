"""Items that models and agents write themselves, and their variants that carry training tokens."""

from typing import Any, Literal

from pydantic import BaseModel, model_validator

from nemo_gym.schema.content import (
    InputContent,
    NeMoGymContent,
    NeMoGymResponseInputContentList,
    NeMoGymSummary,
    ReasoningContent,
    ToolOutput,
)
from nemo_gym.schema.token_fields import TokenIDLogProbMixin, require_whole_bundle
from nemo_gym.schema.wire import WireModel

Phase = Literal["commentary", "final_answer"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Item(WireModel):
    """One entry of a request's input or a response's output."""

    @model_validator(mode="before")
    @classmethod
    def _whole_token_bundle(cls, data: Any) -> Any:
        return require_whole_bundle(data)


class NeMoGymEasyInputMessage(Item):
    """A message of any role, in its short form."""

    content: InputContent
    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"
    phase: Phase | None = None


class NeMoGymMessage(Item):
    """A message to the model, with a status."""

    content: NeMoGymResponseInputContentList
    role: Literal["user", "system", "developer"]
    status: ItemStatus = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseOutputMessage(Item):
    """A message from the model."""

    id: str
    content: list[NeMoGymContent]
    role: Literal["assistant"] = "assistant"
    status: ItemStatus = "completed"
    type: Literal["message"] = "message"
    phase: Phase | None = None


class NeMoGymResponseFunctionToolCall(Item):
    """A call of a function tool; `arguments` is the model's JSON text, not necessarily valid."""

    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: ItemStatus | None = None
    namespace: str | None = None


class NeMoGymFunctionCallOutput(Item):
    """What a function tool answered."""

    call_id: str
    output: ToolOutput
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: ItemStatus | None = None


class NeMoGymResponseReasoningItem(Item):
    """The model's reasoning. It has no status: providers that send one refuse it when it is replayed."""

    id: str
    summary: list[NeMoGymSummary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[ReasoningContent] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_status(cls, data: Any) -> Any:
        if isinstance(data, dict) and "status" in data:
            return {key: value for key, value in data.items() if key != "status"}
        return data


class NeMoGymEasyInputMessageForTraining(NeMoGymEasyInputMessage, TokenIDLogProbMixin):
    """An easy message with the tokens of the call that wrote it."""


class NeMoGymMessageForTraining(NeMoGymMessage, TokenIDLogProbMixin):
    """A message with the tokens of the call that wrote it."""


class NeMoGymResponseOutputMessageForTraining(NeMoGymResponseOutputMessage, TokenIDLogProbMixin):
    """An output message with the tokens of the call that wrote it."""


class NeMoGymResponseFunctionToolCallForTraining(NeMoGymResponseFunctionToolCall, TokenIDLogProbMixin):
    """A function call with the tokens of the call that wrote it."""


class NeMoGymResponseReasoningItemForTraining(NeMoGymResponseReasoningItem, TokenIDLogProbMixin):
    """A reasoning item with the tokens of the call that wrote it."""


TRAINING_ITEMS: dict[type[BaseModel], type[BaseModel]] = {
    NeMoGymEasyInputMessage: NeMoGymEasyInputMessageForTraining,
    NeMoGymMessage: NeMoGymMessageForTraining,
    NeMoGymResponseOutputMessage: NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseFunctionToolCall: NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseReasoningItem: NeMoGymResponseReasoningItemForTraining,
}
