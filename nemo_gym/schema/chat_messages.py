"""Messages and tools of a Chat Completions request: plain dicts, checked strictly."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from nemo_gym.schema.token_fields import TOKEN_METADATA_FIELDS, TokenIDLogProbTypedDictMixin
from nemo_gym.schema.wire import LIST, TEXT, TEXT_OR_LIST, plain

_FORBID = ConfigDict(extra="forbid")


@with_config(_FORBID)
class NeMoGymChatCompletionContentPartTextParam(TypedDict):
    """Text."""

    text: str
    type: Literal["text"]
    prompt_cache_breakpoint: NotRequired[dict[str, Any]]


@with_config(_FORBID)
class NeMoGymChatCompletionContentPartRefusalParam(TypedDict):
    """A refusal the model gave earlier."""

    refusal: str
    type: Literal["refusal"]


@with_config(_FORBID)
class ImageURL(TypedDict, total=False):
    """Where an image is, and how closely to look."""

    url: Required[str]
    detail: Literal["auto", "low", "high"]


@with_config(_FORBID)
class NeMoGymChatCompletionContentPartImageParam(TypedDict):
    """An image."""

    image_url: ImageURL
    type: Literal["image_url"]
    prompt_cache_breakpoint: NotRequired[dict[str, Any]]


@with_config(_FORBID)
class InputAudio(TypedDict):
    """Base64 audio; any format a backend understands."""

    data: str
    format: str


@with_config(_FORBID)
class NeMoGymChatCompletionContentPartInputAudioParam(TypedDict):
    """Audio."""

    input_audio: InputAudio
    type: Literal["input_audio"]
    prompt_cache_breakpoint: NotRequired[dict[str, Any]]


@with_config(_FORBID)
class FileReference(TypedDict, total=False):
    """A file by content or id."""

    file_data: str
    file_id: str
    filename: str


@with_config(_FORBID)
class NeMoGymChatCompletionContentPartFileParam(TypedDict):
    """A file."""

    file: FileReference
    type: Literal["file"]
    prompt_cache_breakpoint: NotRequired[dict[str, Any]]


@with_config(_FORBID)
class ChatVideoURL(TypedDict):
    """The object form of a video address."""

    url: str


@with_config(_FORBID)
class NeMoGymChatCompletionContentPartVideoParam(TypedDict):
    """A video."""

    video_url: str | ChatVideoURL
    type: Literal["video_url"]


NeMoGymChatCompletionContentPartParam = Annotated[
    NeMoGymChatCompletionContentPartTextParam
    | NeMoGymChatCompletionContentPartImageParam
    | NeMoGymChatCompletionContentPartInputAudioParam
    | NeMoGymChatCompletionContentPartFileParam
    | NeMoGymChatCompletionContentPartVideoParam,
    Field(discriminator="type"),
]
TextContent = Annotated[
    Annotated[str, TEXT] | Annotated[list[NeMoGymChatCompletionContentPartTextParam], LIST], TEXT_OR_LIST
]
AssistantPart = Annotated[
    NeMoGymChatCompletionContentPartTextParam | NeMoGymChatCompletionContentPartRefusalParam,
    Field(discriminator="type"),
]


@with_config(_FORBID)
class NeMoGymChatCompletionMessageToolCallFunctionParam(TypedDict):
    """The function a model called; `arguments` is its JSON text."""

    arguments: str
    name: str


@with_config(_FORBID)
class NeMoGymChatCompletionMessageToolCallParam(TypedDict):
    """A call of a function."""

    id: str
    function: NeMoGymChatCompletionMessageToolCallFunctionParam
    type: Literal["function"]


@with_config(_FORBID)
class CustomCall(TypedDict):
    """The custom tool a model called, with its free-form input."""

    input: str
    name: str


@with_config(_FORBID)
class NeMoGymChatCompletionMessageCustomToolCallParam(TypedDict):
    """A call of a custom tool."""

    id: str
    custom: CustomCall
    type: Literal["custom"]


def _without_outer_name(call: Any) -> Any:
    """Some harnesses repeat the function's name beside the call; it says nothing new."""
    if (type(call) is dict or isinstance(call, Mapping)) and "name" in call:
        return {key: value for key, value in call.items() if key != "name"}
    return call


NeMoGymChatCompletionMessageToolCallUnionParam = Annotated[
    NeMoGymChatCompletionMessageToolCallParam | NeMoGymChatCompletionMessageCustomToolCallParam,
    Field(discriminator="type"),
]
NeMoGymChatCompletionMessageToolCallsParam = list[
    Annotated[NeMoGymChatCompletionMessageToolCallUnionParam, BeforeValidator(_without_outer_name)]
]


@with_config(_FORBID)
class NeMoGymChatCompletionDeveloperMessageParam(TypedDict):
    """Instructions from the developer."""

    content: TextContent
    role: Literal["developer"]
    name: NotRequired[str]


@with_config(_FORBID)
class NeMoGymChatCompletionSystemMessageParam(TypedDict):
    """Instructions from the system."""

    content: TextContent
    role: Literal["system"]
    name: NotRequired[str]


@with_config(_FORBID)
class NeMoGymChatCompletionUserMessageParam(TypedDict):
    """What the user says and shows."""

    content: Annotated[
        Annotated[str, TEXT] | Annotated[list[NeMoGymChatCompletionContentPartParam], LIST], TEXT_OR_LIST
    ]
    role: Literal["user"]
    name: NotRequired[str]


@with_config(_FORBID)
class AssistantAudio(TypedDict):
    """Audio the model gave earlier."""

    id: str


@with_config(_FORBID)
class NeMoGymChatCompletionAssistantMessageParam(TypedDict, total=False):
    """What the model said earlier; content may be null or missing."""

    role: Required[Literal["assistant"]]
    audio: AssistantAudio | None
    content: Annotated[Annotated[str, TEXT] | Annotated[list[AssistantPart], LIST], TEXT_OR_LIST] | None
    function_call: NeMoGymChatCompletionMessageToolCallFunctionParam | None
    name: str
    refusal: str | None
    tool_calls: NeMoGymChatCompletionMessageToolCallsParam | None
    reasoning_content: str | None
    reasoning: str | None


@with_config(_FORBID)
class NeMoGymChatCompletionAssistantMessageForTrainingParam(
    NeMoGymChatCompletionAssistantMessageParam, TokenIDLogProbTypedDictMixin
):
    """What the model said earlier, with the tokens of that call."""


@with_config(_FORBID)
class NeMoGymChatCompletionToolMessageParam(TypedDict):
    """What a tool answered."""

    content: TextContent
    role: Literal["tool"]
    tool_call_id: str


def _message_role(message: Any) -> str | None:
    if type(message) is not dict and not isinstance(message, Mapping):
        return None
    role = message.get("role")
    if role == "assistant" and not TOKEN_METADATA_FIELDS.isdisjoint(message):
        return "assistant_for_training"
    return role if role is None or type(role) is str else str(role)


NeMoGymChatCompletionMessageParam = Annotated[
    Annotated[NeMoGymChatCompletionDeveloperMessageParam, Tag("developer")]
    | Annotated[NeMoGymChatCompletionSystemMessageParam, Tag("system")]
    | Annotated[NeMoGymChatCompletionUserMessageParam, Tag("user")]
    | Annotated[NeMoGymChatCompletionAssistantMessageParam, Tag("assistant")]
    | Annotated[NeMoGymChatCompletionToolMessageParam, Tag("tool")]
    | Annotated[NeMoGymChatCompletionAssistantMessageForTrainingParam, Tag("assistant_for_training")],
    Discriminator(_message_role),
    BeforeValidator(plain),
]


@with_config(_FORBID)
class NeMoGymFunctionDefinition(TypedDict, total=False):
    """A function the model may call; `parameters` is a JSON schema."""

    name: Required[str]
    description: str
    parameters: dict[str, Any]
    strict: bool | None


@with_config(_FORBID)
class NeMoGymChatCompletionToolParam(TypedDict):
    """A function tool."""

    function: NeMoGymFunctionDefinition
    type: Literal["function"]


@with_config(_FORBID)
class CustomDefinition(TypedDict, total=False):
    """A custom tool, optionally bound by a grammar."""

    name: Required[str]
    description: str
    format: dict[str, Any]


@with_config(_FORBID)
class NeMoGymChatCompletionCustomToolParam(TypedDict):
    """A custom tool."""

    custom: CustomDefinition
    type: Literal["custom"]


NeMoGymChatCompletionToolUnionParam = Annotated[
    NeMoGymChatCompletionToolParam | NeMoGymChatCompletionCustomToolParam, Field(discriminator="type")
]
