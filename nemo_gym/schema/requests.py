"""`POST /v1/responses`: the request."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required

from pydantic import BaseModel, ConfigDict, Field, model_validator, with_config
from typing_extensions import TypedDict

from nemo_gym.schema.content import InputPart
from nemo_gym.schema.item_unions import NeMoGymResponseInput
from nemo_gym.schema.replay import replayable_items, replayable_tool
from nemo_gym.schema.tools import ToolChoiceMode, ToolChoiceParam, ToolParam
from nemo_gym.schema.wire import LIST, OBJECT, TEXT, TEXT_OR_LIST, TEXT_OR_OBJECT

_FORBID = ConfigDict(extra="forbid")

Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
SummaryDetail = Literal["auto", "concise", "detailed"]
Verbosity = Literal["low", "medium", "high"]
CacheRetention = Literal["in_memory", "24h"]


@with_config(_FORBID)
class ReasoningParam(TypedDict, total=False):
    """How much the model should reason, and how it should show it."""

    context: Literal["auto", "current_turn", "all_turns"] | None
    effort: ReasoningEffort | None
    generate_summary: SummaryDetail | None
    mode: str
    summary: SummaryDetail | None


@with_config(_FORBID)
class PlainTextFormatParam(TypedDict):
    """Plain text, or any JSON object."""

    type: Literal["text", "json_object"]


@with_config(_FORBID)
class JSONSchemaFormatParam(TypedDict, total=False):
    """JSON that follows a named schema."""

    type: Required[Literal["json_schema"]]
    name: Required[str]
    schema: Required[dict[str, Any]]
    description: str | None
    strict: bool | None


@with_config(_FORBID)
class TextParam(TypedDict, total=False):
    """The form of the answer."""

    format: Annotated[PlainTextFormatParam | JSONSchemaFormatParam, Field(discriminator="type")]
    verbosity: Verbosity | None


@with_config(_FORBID)
class PromptParam(TypedDict, total=False):
    """A prompt stored at the provider, with its variables."""

    id: Required[str]
    variables: dict[str, str | InputPart] | None
    version: str | None


@with_config(_FORBID)
class ContextManagementParam(TypedDict, total=False):
    """When the provider should fold history."""

    type: Required[str]
    compact_threshold: int | None


@with_config(_FORBID)
class ConversationParam(TypedDict):
    """A conversation stored at the provider."""

    id: str


@with_config(_FORBID)
class ModerationParam(TypedDict, total=False):
    """Which moderation model looks at input and output."""

    model: Required[str]
    policy: dict[str, Any] | None


@with_config(_FORBID)
class StreamOptionsParam(TypedDict, total=False):
    """Options of streams."""

    include_obfuscation: bool


class NeMoGymResponseCreateParamsNonStreaming(BaseModel):
    """The body of a Responses request that asks for one whole answer. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    background: bool | None = None
    include: list[Includable] | None = None
    input: Annotated[Annotated[str, TEXT] | Annotated[NeMoGymResponseInput, LIST], TEXT_OR_LIST]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: PromptParam | None = None
    reasoning: ReasoningParam | None = None
    service_tier: ServiceTier | None = None
    store: bool | None = None
    context_management: list[ContextManagementParam] | None = None
    conversation: str | ConversationParam | None = None
    moderation: ModerationParam | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: CacheRetention | None = None
    safety_identifier: str | None = None
    stream_options: StreamOptionsParam | None = None
    temperature: float | None = None
    text: TextParam | None = None
    tool_choice: Annotated[Annotated[ToolChoiceMode, TEXT] | Annotated[ToolChoiceParam, OBJECT], TEXT_OR_OBJECT] = (
        "auto"
    )
    tools: list[ToolParam] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    stream: Literal[False] | None = None

    @model_validator(mode="before")
    @classmethod
    def normalize_output_items_for_replay(cls, value: Any) -> Any:
        """Makes what a provider answered acceptable as input. Works on a copy."""
        if type(value) is not dict and not isinstance(value, Mapping):  # of which the second is slow to tell
            return value
        body = dict(value)
        if isinstance(body.get("input"), list | tuple):
            body["input"] = replayable_items(body["input"])
        if isinstance(body.get("tools"), list | tuple):
            body["tools"] = [replayable_tool(tool) for tool in body["tools"]]
        return body
