"""How an agent reaches the tools of a resources server."""

from typing import Annotated, Literal

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field

from nemo_gym.schema.episodes import ID_PATTERN

AccessName = Annotated[str, Field(min_length=1, pattern=ID_PATTERN)]


class DirectHTTPToolAccess(BaseModel):
    """Tools as HTTP routes under a base URL, with the session's cookies."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["direct_http"] = "direct_http"
    name: AccessName
    required: bool
    base_url: AnyHttpUrl
    cookies: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)


class MCPStreamableHTTPConnection(BaseModel):
    """An MCP server over streamable HTTP."""

    model_config = ConfigDict(extra="forbid")

    transport: Literal["streamable_http"] = "streamable_http"
    url: AnyHttpUrl
    headers: dict[str, str] = Field(default_factory=dict)


class MCPToolAccess(BaseModel):
    """Tools of an MCP server."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["mcp"] = "mcp"
    name: AccessName
    required: bool
    connection: MCPStreamableHTTPConnection


ToolAccess = Annotated[DirectHTTPToolAccess | MCPToolAccess, Field(discriminator="kind")]
