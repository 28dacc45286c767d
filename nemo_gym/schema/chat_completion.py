"""`POST /v1/chat/completions`: the answer. What a backend leaves out or sends as null reads as empty."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, field_validator, model_validator

from nemo_gym.schema.token_fields import TokenIDLogProbMixin, has_token_bundle, require_whole_bundle
from nemo_gym.schema.wire import OpenModel, WireModel


class NeMoGymFunction(BaseModel):
    """The function a model called; `arguments` is its JSON text, not necessarily valid."""

    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCall(WireModel):
    """A call of a function."""

    id: str
    function: NeMoGymFunction
    type: Literal["function"]


class CustomCallBody(WireModel):
    """The custom tool a model called, with its free-form input."""

    input: str
    name: str


class NeMoGymChatCompletionMessageCustomToolCall(WireModel):
    """A call of a custom tool."""

    id: str
    custom: CustomCallBody
    type: Literal["custom"]


NeMoGymChatCompletionMessageToolCallUnion = Annotated[
    NeMoGymChatCompletionMessageToolCall | NeMoGymChatCompletionMessageCustomToolCall, Field(discriminator="type")
]


class DeprecatedFunctionCall(WireModel):
    """How calls looked before tools."""

    arguments: str
    name: str


class NeMoGymChatCompletionMessage(WireModel):
    """What the model said."""

    content: str | None = None
    refusal: str | None = None
    role: Literal["assistant"]
    annotations: list[OpenModel] | None = None
    audio: OpenModel | None = None
    function_call: DeprecatedFunctionCall | None = None
    tool_calls: list[NeMoGymChatCompletionMessageToolCallUnion] | None = None

    @model_validator(mode="before")
    @classmethod
    def _whole_token_bundle(cls, data: Any) -> Any:
        return require_whole_bundle(data)


class NeMoGymChatCompletionMessageForTraining(NeMoGymChatCompletionMessage, TokenIDLogProbMixin):
    """What the model said, with the tokens of the call."""


def _message_kind(message: Any) -> str:
    if isinstance(message, Mapping):
        return "training" if has_token_bundle(message) else "plain"
    return "training" if isinstance(message, TokenIDLogProbMixin) else "plain"


NeMoGymChatCompletionOutputMessage = Annotated[
    Annotated[NeMoGymChatCompletionMessage, Tag("plain")]
    | Annotated[NeMoGymChatCompletionMessageForTraining, Tag("training")],
    Discriminator(_message_kind),
]


class TopTokenLogprob(WireModel):
    """One alternative token."""

    token: str
    bytes: list[int] | None = None
    logprob: float


class TokenLogprob(TopTokenLogprob):
    """One generated token and its alternatives."""

    top_logprobs: list[TopTokenLogprob] = Field(default_factory=list)


class ChoiceLogprobs(WireModel):
    """Log-probabilities per token of the content and of a refusal."""

    content: list[TokenLogprob] | None = None
    refusal: list[TokenLogprob] | None = None


class NeMoGymChoice(WireModel):
    """One of the answers a backend gave."""

    finish_reason: str | None
    index: int
    logprobs: ChoiceLogprobs | None = None
    message: NeMoGymChatCompletionOutputMessage

    @field_validator("message", mode="before")
    @classmethod
    def _empty_message(cls, message: Any) -> Any:
        if message is None:
            return {"role": "assistant", "content": None}
        if isinstance(message, dict) and message.get("role") is None:
            return {**message, "role": "assistant"}
        return message


class CompletionTokensDetails(WireModel):
    """What the generated tokens were; null where nobody said."""

    accepted_prediction_tokens: int | None = None
    audio_tokens: int | None = None
    reasoning_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class PromptTokensDetails(WireModel):
    """What the prompt's tokens were; null where nobody said."""

    audio_tokens: int | None = None
    cached_tokens: int | None = None


class CompletionUsage(WireModel):
    """Tokens of one call."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails | None = None
    prompt_tokens_details: PromptTokensDetails | None = None


class NeMoGymChatCompletion(WireModel):
    """A chat completion. What it does not declare is kept and dumped."""

    id: str
    choices: list[NeMoGymChoice]
    created: int
    model: str
    object: Literal["chat.completion"]
    moderation: OpenModel | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None
