"""What MCP changes about `/seed_session`, which tells where the tools are, and `/verify`, which sees their own names.

MCP clients call a tool `mcp__<server>__<tool>`, and trajectories carry that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.serve.bodies import again, check_nesting, read_body
from nemo_gym.serve.mcp_names import (
    MCP_URL_PATH,
    NEMO_GYM_MCP_METADATA_KEY,
    NEMO_GYM_MCP_SESSION_TOKEN_HEADER,
)
from nemo_gym.serve.mcp_tokens import Grant, Tokens
from nemo_gym.serve.sessions import SESSION_ID_KEY

_TYPED_SEED = frozenset({"resources_session_id", "episode_id", "task_id", "task_data"})
_MCP_PREFIX = b"mcp__"


class SessionRoutes:
    """Completes the answers of `/seed_session` and shows `/verify` the tools' own names; other requests pass by.

    `allowed_tools` gets the body of a seed (of a typed one its `task_data`) and names the tools of its session.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        server_name: str,
        tokens: Tokens,
        allowed_tools: Callable[[dict[str, Any]], Iterable[str] | None],
        own_name: Callable[[str], str],
    ) -> None:
        self.app = app
        self._server_name = server_name
        self._tokens = tokens
        self._allowed_tools = allowed_tools
        self._own_name = own_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else None
        if path == "/seed_session":
            await self._seed(scope, receive, send)
        elif path == "/verify":
            await self._verify(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _seed(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read_body(receive)
        body = _object(raw)
        is_typed = body is not None and body.keys() >= _TYPED_SEED
        asked = body["task_data"] if body is not None and is_typed else body
        allowed = self._allowed_tools(asked if isinstance(asked, dict) else {})
        answer = _Answer()
        await self.app(scope, again(raw, receive), answer.send)
        metadata = self._metadata(scope, allowed)
        await answer.forward(send, lambda value: _with_metadata(value, metadata, is_typed=is_typed))

    def _metadata(self, scope: Scope, allowed: Iterable[str] | None) -> dict[str, Any]:
        grant = Grant(scope["session"][SESSION_ID_KEY], None if allowed is None else tuple(allowed))
        return {
            "server_name": self._server_name,
            "url_path": MCP_URL_PATH,
            "transport": "http",
            "headers": {NEMO_GYM_MCP_SESSION_TOKEN_HEADER: self._tokens.seal(grant)},
        }

    async def _verify(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read_body(receive)
        body = _object(raw) if _MCP_PREFIX in raw else None
        emitted = {} if body is None else _rename_calls(body, lambda call: self._own_name(call["name"]))
        if not emitted:
            await self.app(scope, again(raw, receive), send)
            return
        answer = _Answer()
        await self.app(scope, again(orjson.dumps(body), receive), answer.send)
        await answer.forward(send, lambda value: _with_emitted_names(value, emitted))


def _with_metadata(value: dict[str, Any], metadata: dict[str, Any], *, is_typed: bool) -> dict[str, Any]:
    if not is_typed:
        return {**value, NEMO_GYM_MCP_METADATA_KEY: metadata}
    return {**value, "resources_tools": value.get("resources_tools") or metadata}


def _with_emitted_names(value: dict[str, Any], emitted: dict[str, str]) -> dict[str, Any]:
    _rename_calls(value, lambda call: emitted.get(str(call.get("call_id")), str(call["name"])))
    return value


def _rename_calls(body: dict[str, Any], name_of: Callable[[dict[str, Any]], str]) -> dict[str, str]:
    """Rename the function calls of the response in `body`; the former names of those that changed, by call id."""
    response = body.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    changed: dict[str, str] = {}
    for item in output if isinstance(output, list) else ():
        if not (isinstance(item, dict) and item.get("type") == "function_call" and isinstance(item.get("name"), str)):
            continue
        name = name_of(item)
        if name != item["name"]:
            changed[str(item.get("call_id"))] = item["name"]
            item["name"] = name
    return changed


def _object(raw: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else, which the route itself will refuse."""
    try:
        value = orjson.loads(raw)
        check_nesting(raw, value)
    except (orjson.JSONDecodeError, RequestValidationError):
        return None
    return value if isinstance(value, dict) else None


class _Answer:
    """A whole answer, held back to be changed."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def send(self, message: Message) -> None:
        self._messages.append(message)

    async def forward(self, send: Send, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Send it, changed if it is a success and a JSON object."""
        start = next((message for message in self._messages if message["type"] == "http.response.start"), None)
        value = _object(b"".join(message.get("body", b"") for message in self._messages))
        if start is None or start["status"] >= 400 or value is None:
            for message in self._messages:
                await send(message)
            return
        content = orjson.dumps(change(value))
        headers = [(name, given) for name, given in start.get("headers", ()) if name.lower() != b"content-length"]
        await send({**start, "headers": [*headers, (b"content-length", b"%d" % len(content))]})
        await send({"type": "http.response.body", "body": content})
