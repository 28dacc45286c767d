"""Which requests a server looks at: the right host, no foreign web page, a bounded body."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import TypeAlias
from urllib.parse import urlsplit

import orjson
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1 << 30
_POLICY_VIOLATION = 1008

HostReader: TypeAlias = Callable[[str], str]


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host of `host:port`, `[v6]:port` or a bare host."""
    return (urlsplit(f"//{authority}").hostname or "") if authority else ""


class HostGuard:
    """Refuses requests that a web page made in the user's browser: foreign `Host` (rebinding) or foreign `Origin`.

    Only for servers bound to the loopback; whoever binds another host has consented to be reached.
    """

    def __init__(self, app: ASGIApp, *, own_hosts: Iterable[str] = ()) -> None:
        self.app = app
        self._own = {host.lower() for host in own_hosts}
        self._known: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            for name, value in scope["headers"]:
                if name == b"host" and not self._is_own(value, host_of):
                    await _turn_away(scope, send, 421, "This server answers only to loopback host names.")
                    return
                if name == b"origin" and not self._is_own(value, _origin_host):
                    await _turn_away(scope, send, 403, "Requests from web pages of other hosts are refused.")
                    return
        await self.app(scope, receive, send)

    def _is_own(self, value: bytes, host_in: HostReader) -> bool:
        if value in self._known:
            return True
        try:
            host = host_in(value.decode("latin-1")).lower()
        except ValueError:
            return False
        if host not in self._own and not is_loopback(host):
            return False
        if len(self._known) < 64:
            self._known.add(value)
        return True


class BodyLimit:
    """Answers 413 to a body larger than `max_bytes`, before or while it is read."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = _content_length(scope)
        if declared is None:
            await self._run_counting(scope, receive, send)
        elif declared <= self.max_bytes:
            await self.app(scope, receive, send)
        else:
            await refuse(send, 413, self._message)

    @property
    def _message(self) -> str:
        return f"The request body is larger than {self.max_bytes} bytes."

    async def _run_counting(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app with a body of unknown length; whatever the app makes of the excess, the answer is a 413."""
        read = 0
        has_started = False

        async def counting_receive() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.max_bytes:
                raise HTTPException(413, self._message)
            return message

        async def timely_send(message: Message) -> None:
            nonlocal has_started
            if has_started or read <= self.max_bytes:
                has_started = True
                await send(message)

        try:
            await self.app(scope, counting_receive, timely_send)
        except HTTPException:
            if has_started or read <= self.max_bytes:
                raise
        if read > self.max_bytes and not has_started:
            await refuse(send, 413, self._message)


async def _turn_away(scope: Scope, send: Send, status: int, detail: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": detail})  # a 403 to the handshake
    else:
        await refuse(send, status, detail)


async def refuse(send: Send, status: int, detail: str, more_headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with FastAPI's error shape without running the app."""
    content = orjson.dumps({"detail": detail})
    length = (b"content-length", b"%d" % len(content))
    headers = [(b"content-type", b"application/json"), length, *more_headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None


def _origin_host(origin: str) -> str:
    return urlsplit(origin).hostname or ""
