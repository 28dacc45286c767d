"""Tools over MCP, with the official client on a real socket; and what MCP changes about seeds and verdicts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError
from mcp.types import CallToolResult
from pydantic import ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    SimpleResourcesServer,
)
from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.mcp_auto_exposure import MCP_URL_PATH, TOKEN_HEADER, maybe_auto_expose
from nemo_gym.serve import mcp_tokens
from nemo_gym.serve.mcp_tokens import Grant, TokenError, Tokens
from nemo_gym.server_utils import SESSION_ID_KEY, _session_secret
from tests.unit.serve.toys import RESPONSE, ROW, config_of, mock_client, resources_config, serving


class Seen(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    seen: list[str]


class Counter(SimpleResourcesServer):
    """Counts per session; a seed says which tools its session may use, and what is wrong with it."""

    config: BaseResourcesServerConfig
    _counts: dict[str, int] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        app.post("/peek")(self.peek)
        return app

    def mcp_allowed_tools_for_session(self, seed_body: dict[str, Any]) -> list[str] | None:
        allowed: list[str] | None = seed_body.get("tools")
        return allowed

    async def add(self, request: Request, body: dict[str, int]) -> dict[str, int]:
        """Add to the session's number."""
        session = request.session[SESSION_ID_KEY]
        self._counts[session] = self._counts.get(session, 0) + body["amount"]
        return {"count": self._counts[session]}

    async def peek(self, request: Request) -> int:
        return self._counts.get(request.session[SESSION_ID_KEY], 0)

    async def verify(self, body: BaseVerifyRequest) -> Seen:
        names = [item.name for item in body.response.output if item.type == "function_call"]
        return Seen(**body.model_dump(), reward=1.0, seen=names)


def counter() -> tuple[Counter, FastAPI]:
    config = resources_config(name="counter", expose_tools_over_mcp=True)
    server = Counter(config=config, server_client=mock_client())
    app = server.setup_webserver()
    assert maybe_auto_expose(server, app) is not None
    return server, app


@asynccontextmanager
async def client_at(port: int, headers: dict[str, str] | None = None) -> AsyncIterator[ClientSession]:
    async with (
        httpx.AsyncClient(headers=headers) as http,
        streamable_http_client(f"http://127.0.0.1:{port}{MCP_URL_PATH}", http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


async def seeded(port: int, **body: Any) -> dict[str, str]:
    """The headers of a fresh session."""
    async with httpx.AsyncClient() as http:
        reply = await http.post(f"http://127.0.0.1:{port}/seed_session", json={**ROW, **body})
    headers: dict[str, str] = reply.json()["mcp"]["headers"]
    return headers


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


async def names_at(port: int, headers: dict[str, str] | None) -> list[str]:
    async with client_at(port, headers) as session:
        return [tool.name for tool in (await session.list_tools()).tools]


# --- with the official client -----------------------------------------------------------------------------------------


async def test_calls_work_in_the_session_of_their_token() -> None:
    server, app = counter()
    async with serving(app) as port:
        mine, others = await seeded(port), await seeded(port)
        async with client_at(port, mine) as session:
            for expected in (2, 4):
                result = await session.call_tool("add", {"amount": 2})
                assert not result.isError and result.structuredContent == {"count": expected}
                assert json.loads(text_of(result)) == {"count": expected}
            peeked = await session.call_tool("peek", {})
            assert (text_of(peeked), peeked.structuredContent) == ("4", None)
        async with client_at(port, others) as session:
            assert text_of(await session.call_tool("peek")) == "0"
    assert sorted(server._counts.values()) == [4]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": %s}}' % (b"[" * 250 + b"]" * 250),
        b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
        b'{"jsonrpc": "2.0", "id": "\\udfff", "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": %s}}' % (b"9" * 5_000),
        b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
        b"17",
        b"",
    ],
    ids=range(8),
)
async def test_a_message_that_is_none_is_refused(body: bytes) -> None:
    _, app = counter()
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as http:
        reply = await http.post(MCP_URL_PATH, content=body)
        assert reply.status_code == 400 and reply.json()["error"]["code"] in (-32700, -32602)
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await http.post(MCP_URL_PATH, json=ping)).json()["result"] == {}


@pytest.mark.parametrize("declared", [True, False])
async def test_a_message_that_is_too_large_is_refused(declared: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * (1 << 20)

    _, app = counter()
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        content = b"x" * (5 << 20) if declared else chunks()
        assert (await http.post(MCP_URL_PATH, content=content)).status_code == 413


async def test_a_route_and_mcp_share_the_session() -> None:
    _, app = counter()
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        seed = (await http.post("/seed_session", json=ROW)).json()["mcp"]
        assert (await http.post("/add", json={"amount": 3})).json() == {"count": 3}
        async with client_at(port, seed["headers"]) as session:
            await session.call_tool("add", {"amount": 4})
        assert (await http.post("/peek", json={})).json() == 7


async def test_a_session_sees_and_calls_its_own_tools_only() -> None:
    server, app = counter()
    async with serving(app) as port:
        few = await seeded(port, tools=["peek"])
        assert await names_at(port, few) == ["peek"]
        assert await names_at(port, await seeded(port)) == await names_at(port, None) == ["add", "peek"]
        async with client_at(port, few) as session:
            refused = await session.call_tool("add", {"amount": 1})
            unknown = await session.call_tool("nothing", {})
        async with client_at(port, await seeded(port, tools=[])) as session:
            none = await session.call_tool("peek", {})
    assert refused.isError and "'add' is not for this session" in text_of(refused)
    assert unknown.isError and text_of(unknown) == "There is no tool 'nothing'. The tools are: peek."
    assert none.isError and "There are no tools" in text_of(none)
    assert server._counts == {}


@pytest.mark.parametrize("token", [None, "forged", "other"])
async def test_calls_need_a_token_of_this_server(token: str | None) -> None:
    server, app = counter()
    other = Tokens("another secret").seal(Grant("s"))
    headers = {} if token is None else {TOKEN_HEADER: other if token == "other" else token}
    async with serving(app) as port, client_at(port, headers) as session:
        result = await session.call_tool("add", {"amount": 1})
        if token is not None:
            with pytest.raises(McpError, match="none of this server's"):
                await session.list_tools()
    assert result.isError and TOKEN_HEADER in text_of(result) and server._counts == {}


@pytest.mark.parametrize(("mode", "is_lost"), [("unsupported", True), ("stateless", False)])
async def test_a_token_of_an_earlier_process_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, mode: str, is_lost: bool
) -> None:
    """B26: after a restart the session is gone; an empty one in its place would be a wrong result."""
    monkeypatch.setattr(Counter, "REVERIFY_MODE", mode, raising=False)
    _, app = counter()
    async with serving(app) as port:
        headers = await seeded(port)
    monkeypatch.setenv(GENERATION_ENV, "1")
    server, app = counter()
    async with serving(app) as port:
        async with client_at(port, headers) as session:
            if is_lost:
                for call in (session.call_tool("add", {"amount": 1}), session.list_tools()):
                    with pytest.raises(McpError, match="session_lost") as raised:
                        await call
                    assert raised.value.error.data == {"kind": "session_lost"}
            else:
                assert not (await session.call_tool("add", {"amount": 1})).isError
        assert len(server._counts) == (not is_lost)
        async with client_at(port, await seeded(port)) as session:
            assert not (await session.call_tool("add", {"amount": 1})).isError


async def test_a_tool_that_fails_says_how() -> None:
    _, app = counter()
    async with serving(app) as port, client_at(port, await seeded(port)) as session:
        result = await session.call_tool("add", {})
    assert result.isError and text_of(result) == "HTTP 500 from POST /add: KeyError('amount')"


async def test_an_app_may_live_twice() -> None:
    _, app = counter()
    for _ in range(2):
        async with serving(app) as port:
            assert await names_at(port, None) == ["add", "peek"]


async def test_a_served_process_speaks_mcp_behind_its_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `run_webserver` puts it together, under the prefix of a rollout too."""
    monkeypatch.setattr(Counter, "set_ulimit", lambda self: None)
    monkeypatch.setattr(Counter, "prefix_server_logs", lambda self: None)
    config = resources_config(name="counter", expose_tools_over_mcp=True)
    server = Counter(config=config, server_client=mock_client())
    async with serving(server._assemble(config_of(), is_main=False)) as port:
        headers = await seeded(port)
        async with client_at(port, headers) as session:
            assert not (await session.call_tool("add", {"amount": 1})).isError
        url = f"http://127.0.0.1:{port}"
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(base_url=url) as http:
            prefixed = await http.post("/ng-rollout/0-0/mcp", json=call, headers=accept)
            foreign = await http.post("/mcp", json=call, headers={**accept, "Host": "evil.example"})
    assert [tool["name"] for tool in prefixed.json()["result"]["tools"]] == ["add", "peek"]
    assert foreign.status_code == 421


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_a_seed_tells_where_the_tools_are() -> None:
    server, app = counter()
    client = TestClient(app)
    found = client.post("/seed_session", json={**ROW, "tools": ["add"]}).json()
    assert found.keys() == {"mcp"}
    assert {name: value for name, value in found["mcp"].items() if name != "headers"} == {
        "server_name": "counter",
        "url_path": "/mcp",
        "transport": "http",
    }
    grant = Tokens(_session_secret(server)).of_headers(found["mcp"]["headers"])
    assert grant is not None and grant.tools == ("add",)
    assert client.post("/peek", json={}).json() == 0


TYPED: dict[str, Any] = {
    "resources_session_id": "r1",
    "episode_id": {"rollout_id": "e", "attempt": 0},
    "task_id": {"taskset": "t", "task_id": "1"},
    "task_data": {"tools": ["peek"]},
}


def test_a_typed_seed_gets_them_as_resources_tools() -> None:
    server, app = counter()
    found = TestClient(app).post("/seed_session", json=TYPED).json()
    reply = ResourcesSeedSessionResponse.model_validate(found)
    assert reply.resources_session_id == "r1" and reply.resources_tools is not None
    grant = Tokens(_session_secret(server)).of_headers(reply.resources_tools.headers)
    assert grant is not None and grant.tools == ("peek",)


def test_tools_a_server_names_itself_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"server_name": "own", "url_path": "/x", "transport": "http", "headers": {}}

    async def seed_session(
        self: Counter, body: ResourcesSeedSessionRequest | BaseSeedSessionRequest
    ) -> ResourcesSeedSessionResponse:
        return ResourcesSeedSessionResponse.model_validate({"resources_session_id": "r1", "resources_tools": own})

    monkeypatch.setattr(Counter, "seed_session", seed_session)
    assert TestClient(counter()[1]).post("/seed_session", json=TYPED).json()["resources_tools"] == own


def test_a_hook_that_raises_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(self: Counter, seed_body: dict[str, Any]) -> list[str]:
        raise LookupError("no such tools")

    monkeypatch.setattr(Counter, "mcp_allowed_tools_for_session", hook)
    with pytest.raises(LookupError):
        TestClient(counter()[1]).post("/seed_session", json=ROW)


@pytest.mark.parametrize("body", [b"[1]", b"{", b""])
def test_what_is_no_seed_is_refused_as_ever(body: bytes) -> None:
    reply = TestClient(counter()[1]).post("/seed_session", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 422 and reply.json().keys() == {"detail"}


# --- verdicts ---------------------------------------------------------------------------------------------------------


def call(name: str, call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def verdict(*output: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The names the verifier saw, and those in the record."""
    body = {**ROW, "response": {**RESPONSE, "output": list(output)}}
    reply = TestClient(counter()[1]).post("/verify", json=body)
    assert reply.status_code == 200 and int(reply.headers["content-length"]) == len(reply.content)
    found = reply.json()
    return found["seen"], [item["name"] for item in found["response"]["output"] if item["type"] == "function_call"]


def test_verifiers_see_a_tools_own_name_and_records_keep_the_emitted_one() -> None:
    emitted = ["mcp__counter__add", "peek", "mcp__other__add", "mcp__counter__peek"]
    seen, kept = verdict(*(call(name, f"c{number}") for number, name in enumerate(emitted)))
    assert seen == ["add", "peek", "mcp__other__add", "peek"]
    assert kept == emitted


def test_the_prefix_of_a_rollout_changes_nothing() -> None:
    body = {**ROW, "response": {**RESPONSE, "output": [call("mcp__counter__add", "c")]}}
    client = TestClient(counter()[1])
    assert client.post("/ng-rollout/0-0/verify", json=body).json()["seen"] == ["add"]
    assert "mcp" in client.post("/ng-rollout/0-0/seed_session", json=ROW).json()


def test_names_in_texts_are_left_alone() -> None:
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "mcp__counter__add", "annotations": []}],
    }
    assert verdict(message, call("add", "c")) == (["add"], ["add"])


@pytest.mark.parametrize("output", ["mcp__", [1], [{"type": "function_call", "name": "mcp__counter__add"}], None])
def test_what_is_no_response_is_refused_as_ever(output: Any) -> None:
    body = {**ROW, "response": {**RESPONSE, "output": output}, "mark": "mcp__"}
    assert TestClient(counter()[1]).post("/verify", json=body).status_code == 422


def test_a_deeply_nested_body_is_refused_as_ever() -> None:
    deep = b'{"mcp__": ' + b"[" * 300 + b"]" * 300 + b"}"
    for path in ("/verify", "/seed_session"):
        reply = TestClient(counter()[1]).post(path, content=deep, headers={"content-type": "application/json"})
        assert reply.status_code == 422


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [None, (), ("a", "b")])
def test_a_token_says_what_was_sealed(tools: tuple[str, ...] | None) -> None:
    tokens = Tokens("secret")
    grant = Grant("session", tools)
    assert tokens.of_headers({TOKEN_HEADER: tokens.seal(grant)}) == grant
    assert tokens.of_headers({}) is None is tokens.of_headers(None)


def test_tokens_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens("secret")
    token = tokens.seal(Grant("session"))
    monkeypatch.setattr(mcp_tokens, "MAX_AGE_SECONDS", -1)
    with pytest.raises(TokenError, match="too old"):
        tokens.of_headers({TOKEN_HEADER: token})


def test_another_payload_is_no_token() -> None:
    tokens = Tokens("secret")
    for payload in ([1], {"sid": "s"}, "text"):
        with pytest.raises(TokenError):
            tokens.of_headers({TOKEN_HEADER: str(tokens._serializer.dumps(payload))})


def test_answers_of_seeds_keep_their_cookies() -> None:
    client = TestClient(counter()[1])
    reply = client.post("/seed_session", content=orjson.dumps(ROW), headers={"content-type": "application/json"})
    assert "Counter___counter" in reply.cookies
