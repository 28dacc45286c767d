"""Serving tools over MCP's streamable HTTP, beside the routes they come from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from nemo_gym.schema.failure_kinds import SESSION_LOST
from nemo_gym.serve.bodies import MAX_NESTING, again, read_body
from nemo_gym.serve.guards import BodyLimit
from nemo_gym.serve.json_route import decode_json
from nemo_gym.serve.mcp_binding import DirectDispatchError, call_direct
from nemo_gym.serve.mcp_names import MCP_URL_PATH, NEMO_GYM_MCP_SESSION_TOKEN_HEADER
from nemo_gym.serve.mcp_tokens import Grant, LostTokenError, TokenError, Tokens
from nemo_gym.serve.mcp_tools import MCPTool

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.types import CallToolRequest, CallToolResult, ListToolsRequest, ServerResult


MAX_MESSAGE_BYTES = 4 << 20
LOST_SESSION = -32001
"""The JSON-RPC code for a session that is gone; `data` names the failure's kind."""
_PARSE_ERROR = -32700


class ToolServer:
    """An ASGI app that speaks MCP for a set of tools while its lifespan runs; every request stands for itself."""

    def __init__(self, name: str, tools: Mapping[str, MCPTool], tokens: Tokens) -> None:
        self._name = name
        self._tools = tools
        self._tokens = tokens
        self._manager: StreamableHTTPSessionManager | None = None
        self._limited = BodyLimit(self._answer_json, max_bytes=MAX_MESSAGE_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._manager is None:
            raise RuntimeError("the app's lifespan has not been started, and MCP needs it")
        if scope["method"] == "POST":
            await self._limited(scope, receive, send)
        else:
            await self._manager.handle_request(scope, receive, send)

    async def _answer_json(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Messages go on to the SDK; it would answer 500 to what no parser takes, which is refused here."""
        raw = await read_body(receive)
        try:
            decode_json(raw)
        except (RequestValidationError, HTTPException):
            message = f"Parse error: not JSON in UTF-8, nested deeper than {MAX_NESTING} levels, or a number too long"
            answer = {"jsonrpc": "2.0", "id": None, "error": {"code": _PARSE_ERROR, "message": message}}
            await JSONResponse(answer, status_code=400)(scope, receive, send)
            return
        assert self._manager is not None
        await self._manager.handle_request(scope, again(raw, receive), send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Speak MCP; may be entered again after it was left."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        self._manager = StreamableHTTPSessionManager(
            app=self._server(),
            json_response=True,
            stateless=True,
            # The host guard before us has looked at where requests come from.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        try:
            async with self._manager.run():
                yield
        finally:
            self._manager = None

    def _server(self) -> Server[Any, Any]:
        from mcp import types
        from mcp.server.lowlevel import Server

        server: Server[Any, Any] = Server(self._name)

        async def list_tools(request: ListToolsRequest) -> ServerResult:
            grant = self._granted(_headers(server))
            offered = [tool.tool for tool in self._offered(grant).values()]
            return types.ServerResult(types.ListToolsResult(tools=offered))

        async def call_tool(request: CallToolRequest) -> ServerResult:
            result = await self._call(request.params.name, request.params.arguments or {}, _headers(server))
            return types.ServerResult(result)

        server.request_handlers[types.ListToolsRequest] = list_tools
        server.request_handlers[types.CallToolRequest] = call_tool
        return server

    def _granted(self, headers: Mapping[str, str] | None) -> Grant | None:
        """The grant a request comes with. A lost session is an error of the call, not a tool's answer to a model."""
        from mcp.shared.exceptions import McpError
        from mcp.types import ErrorData

        try:
            return self._tokens.of_headers(headers)
        except LostTokenError as error:
            raise McpError(ErrorData(code=LOST_SESSION, message=str(error), data={"kind": SESSION_LOST})) from error

    def _offered(self, grant: Grant | None) -> dict[str, MCPTool]:
        return {name: tool for name, tool in self._tools.items() if grant is None or grant.allows(name)}

    async def _call(self, name: str, arguments: dict[str, Any], headers: Mapping[str, str] | None) -> CallToolResult:
        try:
            grant = self._granted(headers)
        except TokenError as error:
            return _failed(str(error))
        if grant is None:
            return _failed(f"no session: send the {NEMO_GYM_MCP_SESSION_TOKEN_HEADER} that /seed_session answered")
        tool = self._tools.get(name)
        if tool is None or tool.binding is None or not grant.allows(name):
            return _failed(_refusal(name, tool is not None, self._offered(grant)))
        try:
            value = await call_direct(tool.binding, arguments, session_id=grant.session_id, path_value=tool.path_value)
        except DirectDispatchError as error:
            return _failed(str(error))
        return _succeeded(value)


def mount(app: FastAPI, server: ToolServer) -> None:
    """Serve `/mcp` and everything below before all other routes, for as long as the app lives."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(started: Any) -> AsyncIterator[Any]:
        async with inner(started) as state, server.lifespan():
            yield state

    app.router.lifespan_context = lifespan
    app.router.routes[:0] = [Route(MCP_URL_PATH, server), Mount(MCP_URL_PATH, server)]


def _headers(server: Server[Any, Any]) -> Mapping[str, str] | None:
    """The HTTP headers of the request being answered."""
    request = server.request_context.request
    return None if request is None else request.headers


def _refusal(name: str, is_there: bool, offered: Mapping[str, MCPTool]) -> str:
    known = f"The tools are: {', '.join(offered)}." if offered else "There are no tools."
    problem = f"The tool {name!r} is not for this session." if is_there else f"There is no tool {name!r}."
    return f"{problem} {known}"


def _failed(text: str) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=text)], isError=True)


def _succeeded(value: Any) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    structured = value if isinstance(value, dict) else None
    return CallToolResult(content=[TextContent(type="text", text=text)], structuredContent=structured)
