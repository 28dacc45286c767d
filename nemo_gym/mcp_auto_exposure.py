"""Tool routes of a resources server, offered over MCP as well: `expose_tools_over_mcp: true` in its config."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from nemo_gym.serve.fixed_routes import add_innermost
from nemo_gym.serve.lost_sessions import own_generation
from nemo_gym.serve.mcp_binding import BindResult, DirectBinding, DirectDispatchError, bind_route, call_direct
from nemo_gym.serve.mcp_names import MCP_URL_PATH, NEMO_GYM_MCP_SESSION_TOKEN_HEADER
from nemo_gym.serve.mcp_routes import SessionRoutes
from nemo_gym.serve.mcp_server import ToolServer, mount
from nemo_gym.serve.mcp_tokens import Tokens
from nemo_gym.serve.mcp_tools import PERMISSIVE_SCHEMA, ExposureError, MCPTool, chosen_tools, harvest_tools, post_routes
from nemo_gym.server_utils import _session_secret

__all__ = [
    "MCP_URL_PATH",
    "NEMO_GYM_MCP_SESSION_TOKEN_HEADER",
    "PERMISSIVE_SCHEMA",
    "TOKEN_HEADER",
    "BindResult",
    "DirectBinding",
    "DirectDispatchError",
    "MCPTool",
    "bind_route",
    "call_direct",
    "harvest_tools",
    "install_auto_exposure",
    "maybe_auto_expose",
]

TOKEN_HEADER = NEMO_GYM_MCP_SESSION_TOKEN_HEADER


def maybe_auto_expose(server: Any, app: FastAPI) -> dict[str, MCPTool] | None:
    """`install_auto_exposure` if the server's config asks for it, else None."""
    if not getattr(server.config, "expose_tools_over_mcp", False):
        return None
    return install_auto_exposure(server, app)


def install_auto_exposure(server: Any, app: FastAPI) -> dict[str, MCPTool]:
    """Offer the routes that `server.mcp_tools` chooses as MCP tools at `/mcp`; the tools by name.

    `/seed_session` then tells how to reach them for its session. Call it once, with all routes in place.
    ExposureError, a ValueError, when the app is such that tools called over MCP would not behave as their routes do.
    """
    _require_mcp(server)
    _check_app(app)
    harvested, catchall = harvest_tools(app)
    tools = chosen_tools(server.mcp_tools(harvested, catchall), catchall)
    tokens = Tokens(_session_secret(server), own_generation() if server._holds_sessions() else 0)
    own_routes = Middleware(
        SessionRoutes,
        server_name=server.config.name,
        tokens=tokens,
        allowed_tools=server.mcp_allowed_tools_for_session,
        own_name=server.normalize_tool_name,
    )
    add_innermost(app, own_routes)  # it needs the session
    mount(app, ToolServer(server.config.name, tools, tokens))
    return tools


def _require_mcp(server: Any) -> None:
    if find_spec("mcp") is None:
        raise ExposureError(
            f"The server {server.config.name} sets expose_tools_over_mcp, which needs the package mcp: add "
            f"`mcp>=1.28.1,<2` to its requirements.txt."
        )


def _check_app(app: FastAPI) -> None:
    taken = [getattr(route, "path", "") for route in app.routes]
    if any(path == MCP_URL_PATH or path.startswith(f"{MCP_URL_PATH}/") for path in taken):
        raise ExposureError(f"the app has a route {MCP_URL_PATH} of its own, where its tools were to be served")
    posts = {route.path for route in post_routes(app)}
    for path in ("/seed_session", "/verify"):
        if path not in posts:
            raise ExposureError(
                f"tools are served over MCP for sessions, which are seeded and verified: POST {path} is missing"
            )
    for middleware in app.user_middleware:
        if not _is_known(middleware):
            name = getattr(middleware.cls, "__name__", repr(middleware.cls))
            raise ExposureError(f"tools called over MCP would not pass the app's middleware {name}")


def _is_known(middleware: Middleware) -> bool:
    """Whether tool calls may do without it: ours, and Starlette's sessions."""
    dispatch = middleware.kwargs.get("dispatch")
    module = getattr(dispatch or middleware.cls, "__module__", "")
    return module.startswith("nemo_gym.") or module == "starlette.middleware.sessions"
