"""Parts of message content: what goes in (plain dicts) and what a model gives back."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from nemo_gym.schema.wire import LIST, TEXT, TEXT_OR_LIST, OpenModel, WireModel

_IGNORE = ConfigDict(extra="ignore")
_KEEP = ConfigDict(extra="allow")


@with_config(_IGNORE)
class NeMoGymResponseInputText(TypedDict):
    """Text given to the model."""

    text: str
    type: Literal["input_text"]
    prompt_cache_breakpoint: NotRequired[dict[str, Any] | None]


@with_config(_IGNORE)
class InputImagePart(TypedDict, total=False):
    """An image by URL (or data URI) or by file id; `detail` must be given."""

    detail: Required[Literal["low", "high", "auto", "original"]]
    type: Required[Literal["input_image"]]
    file_id: str | None
    image_url: str | None
    prompt_cache_breakpoint: dict[str, Any] | None


@with_config(_IGNORE)
class InputFilePart(TypedDict, total=False):
    """A file by content, id or URL."""

    type: Required[Literal["input_file"]]
    detail: Literal["auto", "low", "high"] | None
    file_data: str | None
    file_id: str | None
    file_url: str | None
    filename: str | None
    prompt_cache_breakpoint: dict[str, Any] | None


@with_config(_IGNORE)
class InputAudioPart(TypedDict, total=False):
    """Audio as base64 with its format."""

    type: Required[Literal["input_audio"]]
    input_audio: Required[dict[str, Any]]


@with_config(_IGNORE)
class VideoURL(TypedDict):
    """The object form of a video address."""

    url: str


@with_config(_IGNORE)
class NeMoGymInputVideoPart(TypedDict, total=False):
    """A video, under exactly one of `video_url` and `video`."""

    type: Required[Literal["input_video"]]
    video_url: str | VideoURL
    video: str | VideoURL


def video_address(part: Mapping[str, Any]) -> str:
    """The URL of a video part. Raises ValueError unless exactly one non-empty source is given."""
    sources = [part[key] for key in ("video_url", "video") if key in part]
    if len(sources) != 1:
        raise ValueError("input_video needs exactly one of video_url and video")
    source = sources[0]
    url = source if isinstance(source, str) else source["url"]
    if not url:
        raise ValueError("input_video needs a URL that is not empty")
    return url


def _one_source(part: NeMoGymInputVideoPart) -> NeMoGymInputVideoPart:
    video_address(part)
    return part


InputPart = Annotated[
    NeMoGymResponseInputText
    | InputImagePart
    | InputFilePart
    | InputAudioPart
    | Annotated[NeMoGymInputVideoPart, AfterValidator(_one_source)],
    Field(discriminator="type"),
]
NeMoGymResponseInputContentList = list[InputPart]
InputContent = Annotated[Annotated[str, TEXT] | Annotated[NeMoGymResponseInputContentList, LIST], TEXT_OR_LIST]

ToolOutputPart = Annotated[
    NeMoGymResponseInputText | InputImagePart | InputFilePart | InputAudioPart, Field(discriminator="type")
]
ToolOutput = Annotated[Annotated[str, TEXT] | Annotated[list[ToolOutputPart], LIST], TEXT_OR_LIST]


@with_config(_KEEP)
class Annotation(TypedDict, total=False):
    """A citation or file path; its other fields depend on the type and are kept as they came."""

    type: Required[str]


@with_config(_KEEP)
class TopLogprob(TypedDict, total=False):
    """One alternative token."""

    token: Required[str]
    bytes: list[int] | None
    logprob: Required[float]


@with_config(_KEEP)
class Logprob(TypedDict, total=False):
    """Log-probability of one generated token."""

    token: Required[str]
    bytes: list[int] | None
    logprob: Required[float]
    top_logprobs: list[TopLogprob] | None


class NeMoGymResponseOutputText(WireModel):
    """Text a model produced."""

    annotations: list[Annotation]
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[Logprob] | None = None


class NeMoGymResponseOutputRefusal(WireModel):
    """A model's refusal."""

    refusal: str
    type: Literal["refusal"] = "refusal"


class NeMoGymSummary(WireModel):
    """One paragraph of reasoning summary."""

    text: str
    type: Literal["summary_text"]


class ReasoningContent(OpenModel):
    """Raw reasoning text, where a provider shows it."""

    text: str
    type: str


def output_part_type(part: Any) -> str | None:
    """The type of one part of a model's message, inferred where it was left out; None if it isn't such a part."""
    if not isinstance(part, dict):
        return part.type if isinstance(part, NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal) else None
    if "type" in part:
        return part["type"] if part["type"] in ("output_text", "refusal") else None
    if "refusal" in part:
        return "refusal"
    return "output_text" if "annotations" in part and "text" in part else None


NeMoGymContent = Annotated[
    Annotated[NeMoGymResponseOutputText, Tag("output_text")] | Annotated[NeMoGymResponseOutputRefusal, Tag("refusal")],
    Discriminator(output_part_type),
]
