"""`POST /v1/chat/completions`: the request."""

from typing import Annotated, Any, Literal, Required

from pydantic import BaseModel, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from nemo_gym.schema.chat_messages import (
    NeMoGymChatCompletionMessageParam,
    NeMoGymChatCompletionToolUnionParam,
    TextContent,
)
from nemo_gym.schema.requests import CacheRetention, ModerationParam, ReasoningEffort, ServiceTier, Verbosity
from nemo_gym.schema.tools import ToolChoiceMode
from nemo_gym.schema.wire import OBJECT, TEXT, TEXT_OR_OBJECT

_FORBID = ConfigDict(extra="forbid")

# What some providers accept beyond the public protocol.
CHAT_REQUEST_PROVIDER_EXTENSION_FIELDS = frozenset({"chat_template_kwargs", "thinking", "output_config"})


@with_config(_FORBID)
class AudioParam(TypedDict):
    """The form of spoken answers."""

    format: str
    voice: str | dict[str, Any]


@with_config(_FORBID)
class PredictionParam(TypedDict):
    """Text that much of the answer is expected to repeat."""

    content: TextContent
    type: Literal["content"]


@with_config(_FORBID)
class PlainFormatParam(TypedDict):
    """Plain text, or any JSON object."""

    type: Literal["text", "json_object"]


@with_config(_FORBID)
class JSONSchemaParam(TypedDict, total=False):
    """A named JSON schema."""

    name: Required[str]
    description: str
    schema: dict[str, Any]
    strict: bool | None


@with_config(_FORBID)
class JSONSchemaResponseFormatParam(TypedDict):
    """JSON that follows a schema."""

    json_schema: JSONSchemaParam
    type: Literal["json_schema"]


@with_config(_FORBID)
class ChatStreamOptionsParam(TypedDict, total=False):
    """Options of streams."""

    include_obfuscation: bool
    include_usage: bool


@with_config(_FORBID)
class ToolName(TypedDict):
    """A tool by name."""

    name: str


@with_config(_FORBID)
class FunctionChoiceParam(TypedDict):
    """One function."""

    function: ToolName
    type: Literal["function"]


@with_config(_FORBID)
class CustomChoiceParam(TypedDict):
    """One custom tool."""

    custom: ToolName
    type: Literal["custom"]


@with_config(_FORBID)
class AllowedToolsParam(TypedDict):
    """A set of tools, any of them or surely one."""

    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


@with_config(_FORBID)
class AllowedToolsChoiceParam(TypedDict):
    """Any tool of a set."""

    allowed_tools: AllowedToolsParam
    type: Literal["allowed_tools"]


ChatToolChoice = Annotated[
    FunctionChoiceParam | CustomChoiceParam | AllowedToolsChoiceParam, Field(discriminator="type")
]


@with_config(_FORBID)
class WebSearchOptionsParam(TypedDict, total=False):
    """Options of the provider's web search."""

    search_context_size: Literal["low", "medium", "high"]
    user_location: dict[str, Any] | None


class NeMoGymChatCompletionCreateParamsNonStreaming(BaseModel):
    """The body of a Chat Completions request that asks for one whole answer. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    messages: list[NeMoGymChatCompletionMessageParam]
    model: str | None = None
    audio: AudioParam | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, str] | None = None
    moderation: ModerationParam | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    n: int | None = None
    parallel_tool_calls: bool = True
    prediction: PredictionParam | None = None
    presence_penalty: float | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: CacheRetention | None = None
    reasoning_effort: ReasoningEffort | None = None
    response_format: Annotated[PlainFormatParam | JSONSchemaResponseFormatParam, Field(discriminator="type")] | None = (
        None
    )
    seed: int | None = None
    safety_identifier: str | None = None
    service_tier: ServiceTier | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream_options: ChatStreamOptionsParam | None = None
    temperature: float | None = None
    tool_choice: (
        Annotated[Annotated[ToolChoiceMode, TEXT] | Annotated[ChatToolChoice, OBJECT], TEXT_OR_OBJECT] | None
    ) = None
    tools: list[NeMoGymChatCompletionToolUnionParam] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    verbosity: Verbosity | None = None
    web_search_options: WebSearchOptionsParam | None = None
    stream: Literal[False] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
