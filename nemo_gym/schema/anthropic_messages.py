"""`POST /v1/messages`: request and answer."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.schema.wire import OpenModel, WireModel


class AnthropicTurn(WireModel):
    """One message of the request; its blocks are checked where they are converted."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class NeMoGymAnthropicMessageCreateParamsNonStreaming(BaseModel):
    """The body of a Messages request that asks for one whole answer. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    max_tokens: int
    messages: list[AnthropicTurn]
    model: str
    cache_control: dict[str, Any] | None = None
    container: str | dict[str, Any] | None = None
    inference_geo: str | None = None
    metadata: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    stop_sequences: list[str] | None = None
    system: str | list[dict[str, Any]] | None = None
    temperature: float | None = None
    thinking: dict[str, Any] | None = None
    tool_choice: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_k: int | None = None
    top_p: float | None = None
    stream: Literal[False] = False


class ContentBlock(OpenModel):
    """One block of an answer."""

    type: str


class AnthropicUsage(WireModel):
    """Tokens of one call; input tokens don't include cached ones."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class NeMoGymAnthropicMessage(WireModel):
    """A message. What it does not declare is kept and dumped."""

    id: str
    content: list[ContentBlock] = Field(default_factory=list)
    model: str
    role: Literal["assistant"]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    type: Literal["message"]
    usage: AnthropicUsage
