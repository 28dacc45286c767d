"""Tools and tool choice of a Responses request (plain dicts) and of the response that echoes them (models)."""

from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from nemo_gym.schema.wire import OpenModel, WireModel

_FORBID = ConfigDict(extra="forbid")
_KEEP = ConfigDict(extra="allow")

HostedToolType = Literal[
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "namespace",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
]


@with_config(_FORBID)
class NeMoGymFunctionToolParam(TypedDict, total=False):
    """A function the model may call; `parameters` (a JSON schema) and `strict` must be given, null allowed."""

    name: Required[str]
    parameters: Required[dict[str, Any] | None]
    strict: Required[bool | None]
    type: Required[Literal["function"]]
    allowed_callers: list[Literal["direct", "programmatic"]] | None
    defer_loading: bool
    description: str | None
    output_schema: dict[str, Any] | None


@with_config(_FORBID)
class CustomToolParam(TypedDict, total=False):
    """A tool with free-form input, optionally bound by a grammar."""

    name: Required[str]
    type: Required[Literal["custom"]]
    allowed_callers: list[Literal["direct", "programmatic"]] | None
    defer_loading: bool
    description: str
    format: dict[str, Any]


@with_config(_KEEP)
class HostedToolParam(TypedDict):
    """A tool that runs at the provider, who alone knows its settings."""

    type: HostedToolType


def _tool_kind(tool: Any) -> str | None:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if kind is None:
        return None
    return kind if kind in ("function", "custom") else "hosted"


ToolParam = Annotated[
    Annotated[NeMoGymFunctionToolParam, Tag("function")]
    | Annotated[CustomToolParam, Tag("custom")]
    | Annotated[HostedToolParam, Tag("hosted")],
    Discriminator(_tool_kind),
]


@with_config(_FORBID)
class NamedToolChoice(TypedDict):
    """One function or custom tool."""

    type: Literal["function", "custom"]
    name: str


@with_config(_FORBID)
class AllowedToolsChoice(TypedDict):
    """Any tool of a set, or surely one of them."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


@with_config(_FORBID)
class McpToolChoice(TypedDict, total=False):
    """A server's tools, or one of them."""

    type: Required[Literal["mcp"]]
    server_label: Required[str]
    name: str | None


@with_config(_FORBID)
class HostedToolChoice(TypedDict):
    """One tool of the provider's."""

    type: Literal[
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use",
        "computer_use_preview",
        "file_search",
        "image_generation",
        "programmatic_tool_calling",
        "shell",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    ]


ToolChoiceParam = Annotated[
    NamedToolChoice | AllowedToolsChoice | McpToolChoice | HostedToolChoice, Field(discriminator="type")
]
ToolChoiceMode = Literal["none", "auto", "required"]


class FunctionTool(WireModel):
    """A function tool as a response echoes it."""

    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    type: Literal["function"]
    description: str | None = None


class OtherTool(OpenModel):
    """Any other tool as a response echoes it."""

    type: str


def _echoed_tool_kind(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return "function" if kind == "function" else "other"


EchoedTool = Annotated[
    Annotated[FunctionTool, Tag("function")] | Annotated[OtherTool, Tag("other")], Discriminator(_echoed_tool_kind)
]


class EchoedToolChoice(OpenModel):
    """A tool choice, other than a mode, as a response echoes it."""

    type: str
