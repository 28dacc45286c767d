"""ASGI apps and callers without a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"


def start(status: int = 200, content_type: bytes = JSON) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]}


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


class App:
    """Reads the request, then sends these messages; an exception among them is raised at its turn."""

    def __init__(self, messages: Iterable[Message | BaseException], execution: dict[str, Any] | None = None) -> None:
        self.messages = list(messages)
        self.execution = execution
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        while (await receive()).get("more_body"):
            pass
        if self.execution is not None:
            scope["state"]["nemo_gym_model_execution"] = self.execution
        for message in self.messages:
            if isinstance(message, BaseException):
                raise message
            await send(message)


async def call(
    app: Any, path: str, body: bytes = b"{}", *, headers: Iterable[tuple[bytes, bytes]] = (), send: Send | None = None
) -> list[Message]:
    """What an app answers to a POST whose body comes in two parts."""
    parts = [body[:1], body[1:]]
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def keep(message: Message) -> None:
        sent.append(message)
        if send is not None:
            await send(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": list(headers)}
    await app(scope, receive, keep)
    return sent
