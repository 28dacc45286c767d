"""Items that models and agents write themselves, and their variants that carry training tokens."""

from typing import Any, Literal, Self

from pydantic import BaseModel, model_validator

from nemo_gym.schema.content import (
    InputContent,
    NeMoGymContent,
    NeMoGymResponseInputContentList,
    NeMoGymSummary,
    ReasoningContent,
    ToolOutput,
)
from nemo_gym.schema.token_fields import TOKEN_METADATA_FIELDS, TokenIDLogProbMixin, require_whole_bundle
from nemo_gym.schema.wire import WireModel

Phase = Literal["commentary", "final_answer"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Item(WireModel):
    """One entry of a request's input or a response's output."""

    @model_validator(mode="after")
    def _whole_token_bundle(self) -> Self:
        """A class without token fields has them among its extra ones. Looks after validation because that's cheaper."""
        extra = self.__pydantic_extra__
        if extra and not TOKEN_METADATA_FIELDS.isdisjoint(extra):
            whole = require_whole_bundle(extra)
            for field in TOKEN_METADATA_FIELDS.intersection(extra).difference(whole):
                del extra[field]
                self.__pydantic_fields_set__.discard(field)
        return self


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

    @model_validator(mode="after")
    def _drop_status(self) -> Self:
        if self.__pydantic_extra__ and "status" in self.__pydantic_extra__:
            del self.__pydantic_extra__["status"]
            self.__pydantic_fields_set__.discard("status")
        return self


class TrainingItem(TokenIDLogProbMixin):
    """An item with token fields: told apart from one with half of them before its fields are looked at."""

    @model_validator(mode="before")
    @classmethod
    def _no_half_bundle(cls, data: Any) -> Any:
        return require_whole_bundle(data)


class NeMoGymEasyInputMessageForTraining(NeMoGymEasyInputMessage, TrainingItem):
    """An easy message with the tokens of the call that wrote it."""


class NeMoGymMessageForTraining(NeMoGymMessage, TrainingItem):
    """A message with the tokens of the call that wrote it."""


class NeMoGymResponseOutputMessageForTraining(NeMoGymResponseOutputMessage, TrainingItem):
    """An output message with the tokens of the call that wrote it."""


class NeMoGymResponseFunctionToolCallForTraining(NeMoGymResponseFunctionToolCall, TrainingItem):
    """A function call with the tokens of the call that wrote it."""


class NeMoGymResponseReasoningItemForTraining(NeMoGymResponseReasoningItem, TrainingItem):
    """A reasoning item with the tokens of the call that wrote it."""


TRAINING_ITEMS: dict[type[BaseModel], type[BaseModel]] = {
    NeMoGymEasyInputMessage: NeMoGymEasyInputMessageForTraining,
    NeMoGymMessage: NeMoGymMessageForTraining,
    NeMoGymResponseOutputMessage: NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseFunctionToolCall: NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseReasoningItem: NeMoGymResponseReasoningItemForTraining,
}
