"""The mock provider's HTTP side: one asyncio protocol per connection, no framework, no task per request."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import orjson

from tests.mock_provider import dialects
from tests.mock_provider.script import Fault, Reply, Script, ScriptError, ScriptState, parse_script

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
}


@dataclass(frozen=True)
class RecordedRequest:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    query: str = ""


@dataclass
class Provider:
    """What all connections share: the script's state, and what was counted."""

    state: ScriptState
    record: int = 1000
    pages: dict[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    max_in_flight: int = 0
    recorded: deque[RecordedRequest] = field(default_factory=deque)

    def reset(self, script: Script) -> None:
        self.state = ScriptState(script)
        self.counts.clear()
        self.recorded.clear()
        self.max_in_flight = self.in_flight

    def arrived(self, path: str, headers: dict[str, str], body: dict[str, Any], query: str = "") -> None:
        self.counts[path] += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        if self.record:
            self.recorded.append(RecordedRequest(path, headers, body, query))
            if len(self.recorded) > self.record:
                self.recorded.popleft()

    def stats(self) -> dict[str, Any]:
        return {
            "requests": sum(self.counts.values()),
            "by_path": dict(self.counts),
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "cpu_seconds": time.process_time(),
        }


class ProviderProtocol(asyncio.Protocol):
    """One client connection. Answers in the order of arrival, after the reply's latency."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.loop = asyncio.get_running_loop()
        self.busy = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.parser: Any = httptools.HttpRequestParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._answered()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    # httptools calls these
    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.chunks.append(body)

    def on_message_complete(self) -> None:
        path, _, query = self.url.decode().partition("?")
        if path.startswith("/_mock/"):
            self._control(path)
            return
        try:
            body = orjson.loads(b"".join(self.chunks)) if self.chunks else {}
        except orjson.JSONDecodeError:
            self._send(400, {"error": {"message": "body is not JSON", "type": "invalid_request_error"}})
            return
        self.busy = True
        self.provider.arrived(path, self.headers, body, query)
        self._serve(dialects.plain_path(path), body)

    def _serve(self, path: str, body: dict[str, Any]) -> None:
        script = self.provider.state.script
        if path in self.provider.pages:
            self._send(200, self.provider.pages[path])
        elif path == "/v1/models":
            self._send(200, dialects.models(script))
        elif path == "/tokenize":
            self._send(200, dialects.tokenize(body, script))
        elif path not in dialects.RENDERERS:
            self._send(404, {"detail": "Not Found"})
        elif body.get("stream"):
            self._send(
                400, {"error": {"message": "the mock provider does not stream", "type": "invalid_request_error"}}
            )
        else:
            reply = self.provider.state.choose(*dialects.last_user_message(path, body))
            latency = script.latency if reply.latency is None else reply.latency
            if latency:
                self.loop.call_later(latency, self._answer, path, body, reply)
            else:
                self._answer(path, body, reply)

    def _answer(self, path: str, body: dict[str, Any], reply: Reply) -> None:
        if self.transport.is_closing():
            return
        if reply.fault is not None and reply.fault.kind != "half":
            self._fail(reply.fault)
            return
        script = self.provider.state.script
        content = orjson.dumps(dialects.RENDERERS[path](body, reply, script) if reply.raw is None else reply.raw)
        if reply.fault is None:
            self._write(200, content)
            return
        head = _head(200, len(content), "")
        self.transport.write(head + content[: len(content) // 2])
        self.transport.close()
        self._answered()

    def _fail(self, fault: Fault) -> None:
        if fault.kind == "hang":
            return
        if fault.kind == "drop":
            self.transport.abort()
        elif fault.kind == "garbage":
            self._write(200, b"<html>not what you asked for" + bytes(range(128, 160)))
        elif fault.kind == "context_length":
            self._send(400, dialects.context_error(self.provider.state.script))
        else:
            error = {"message": fault.message, "type": fault.code or "server_error", "code": fault.code}
            retry_after = "" if fault.retry_after is None else f"retry-after: {fault.retry_after}\r\n"
            self._send(fault.status, {"error": error} if fault.body is None else fault.body, retry_after)

    def _control(self, path: str) -> None:
        if path == "/_mock/stats":
            self._send(200, self.provider.stats())
        elif path == "/_mock/requests":
            self._send(200, [{"path": r.path, "headers": r.headers, "body": r.body} for r in self.provider.recorded])
        elif path == "/_mock/script":
            try:
                script = parse_script(orjson.loads(b"".join(self.chunks)))
            except (ValueError, ScriptError) as error:
                self._send(400, {"error": str(error)})
                return
            self.provider.reset(script)
            self._send(200, {})
        else:
            self._send(404, {"detail": "Not Found"})

    def _send(self, status: int, body: Any, extra_headers: str = "") -> None:
        self._write(status, orjson.dumps(body), extra_headers)

    def _write(self, status: int, content: bytes, extra_headers: str = "") -> None:
        self.transport.write(_head(status, len(content), extra_headers) + content)
        self._answered()
        if not self.parser.should_keep_alive():
            self.transport.close()

    def _answered(self) -> None:
        self.provider.in_flight -= self.busy
        self.busy = False


def _head(status: int, length: int, extra_headers: str) -> bytes:
    reason = _REASONS.get(status, "Status")
    lines = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n{extra_headers}"
    return f"{lines}content-length: {length}\r\n\r\n".encode()


async def listen(provider: Provider, host: str, port: int) -> asyncio.Server:
    """Binds and serves; port 0 chooses one. Raises the descriptor limit so that tens of thousands may be in flight."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: ProviderProtocol(provider), host, port, backlog=4096)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port
