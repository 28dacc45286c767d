"""The tools of a resources server for MCP: harvested from its routes, chosen by the server, checked here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from nemo_gym.serve.errors import ServeError
from nemo_gym.serve.mcp_binding import DirectBinding, bind_route
from nemo_gym.serve.mcp_names import MCP_URL_PATH, RESERVED_MCP_TOOL_NAMES
from nemo_gym.serve.server_log import server_log

if TYPE_CHECKING:
    from mcp.types import Tool

PERMISSIVE_SCHEMA: dict[str, Any] = {"type": "object", "additionalProperties": True}
"""Of a tool whose handler doesn't say what it takes."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+")
LOG = server_log("nemo_gym.mcp_auto_exposure")


class ExposureError(ServeError, ValueError):
    """A server's tools can't be offered over MCP as they are."""


@dataclass
class MCPTool:
    """A tool as MCP clients see it, and how it is called; without a `binding` the `reasons` say why it can't be."""

    name: str
    tool: Tool
    binding: DirectBinding | None
    path_value: str | None = None
    """The tool's name in the path of a route that serves many."""
    path: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Catchall:
    """The route with a parameter in its path: any name may be a tool there."""

    path: str
    binding: DirectBinding | None
    reasons: tuple[str, ...]

    def tool(self, name: str, input_schema: dict[str, Any] | None = None, description: str | None = None) -> MCPTool:
        """The tool `name` of this route; arguments are anything unless a JSON schema is given."""
        shown = _tool(name, description, input_schema or PERMISSIVE_SCHEMA)
        return MCPTool(name, shown, self.binding, name, self.path, self.reasons)


def post_routes(app: FastAPI) -> Iterator[Any]:
    """The POST routes of an app, those of included routers too."""
    try:
        from fastapi.routing import iter_route_contexts

        routes: Iterator[Any] = iter(iter_route_contexts(app.routes))
    except ImportError:
        routes = iter(app.routes)
    for route in routes:
        if "POST" in (getattr(route, "methods", None) or ()) and getattr(route, "endpoint", None) is not None:
            yield route


def harvest_tools(app: FastAPI) -> tuple[list[MCPTool], Catchall | None]:
    """A tool for each POST route that isn't the framework's, and the one route with a parameter in its path.

    ExposureError when several have one.
    """
    tools: list[MCPTool] = []
    parameterized = []
    for route in post_routes(app):
        name = route.path.removeprefix("/")
        if "{" in route.path:
            parameterized.append(route)
        elif name not in RESERVED_MCP_TOOL_NAMES and route.path != MCP_URL_PATH:
            tools.append(_harvested(name, route))
    if len(parameterized) > 1:
        paths = ", ".join(route.path for route in parameterized)
        raise ExposureError(f"only one POST route with a parameter can be served over MCP, and there are {paths}")
    return tools, _catchall(parameterized[0]) if parameterized else None


def chosen_tools(tools: Sequence[MCPTool] | None, catchall: Catchall | None) -> dict[str, MCPTool]:
    """The tools a server offers, by name. ExposureError names the route of one that can't be called, and why."""
    chosen: dict[str, MCPTool] = {}
    for tool in tools or ():
        _check(tool)
        if tool.name in chosen:
            raise ExposureError(f"the MCP tool `{tool.name}` (POST {tool.path}) is there twice")
        chosen[tool.name] = tool
    if catchall is not None and not any(tool.path == catchall.path for tool in chosen.values()):
        LOG.warning("POST %s is offered over MCP by no name: name its tools in `mcp_tools`.", catchall.path)
    return chosen


def _check(tool: MCPTool) -> None:
    where = f"the MCP tool `{tool.name}` (POST {tool.path})"
    if not _TOOL_NAME.fullmatch(tool.name):
        raise ExposureError(f"{where} may only have letters, digits, `_` and `-` in its name")
    if tool.name in RESERVED_MCP_TOOL_NAMES:
        raise ExposureError(f"{where} has the name of one of the framework's routes")
    if tool.binding is None:
        raise ExposureError(f"{where} can't be called over MCP: {'; '.join(tool.reasons)}")


def _harvested(name: str, route: Any) -> MCPTool:
    bound = bind_route(route)
    model = bound.binding.body_model if bound.binding is not None else None
    schema = PERMISSIVE_SCHEMA if model is None else model.model_json_schema()
    description = getattr(route, "description", None) or getattr(route, "summary", None)
    return MCPTool(name, _tool(name, description, schema), bound.binding, None, route.path, bound.reasons)


def _catchall(route: Any) -> Catchall:
    bound = bind_route(route)
    reasons = bound.reasons
    if bound.binding is not None and bound.binding.path_name is None:
        reasons = ("its handler doesn't take the name from the path",)
    return Catchall(route.path, None if reasons else bound.binding, reasons)


def _tool(name: str, description: str | None, schema: dict[str, Any]) -> Tool:
    from mcp.types import Tool

    return Tool(name=name, description=description or None, inputSchema=schema)
