"""A prompt that doesn't fit the engine's context: which errors mean it, and what is answered instead."""

from __future__ import annotations

import re
import time
from typing import Any

from aiohttp import ClientResponseError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.schema.backend_answers import is_context_overflow

LOCAL_COMPLETION_ID = "chtcmpl-123"

# A 400 about the value or the name of max_tokens itself is the caller's mistake, not a full context.
_BAD_PARAMETER = re.compile(
    r"input should be|validation error|must be an integer|valid integer|unsupported|not supported|unrecognized|"
    r"unknown|extra inputs|deprecated",
    re.IGNORECASE,
)


def is_overflow(error: ClientResponseError, request: dict[str, Any] | None = None) -> bool:
    """Whether an engine's error says that prompt and answer don't fit its context."""
    content: bytes = getattr(error, "response_content", b"")
    if error.status == 500:
        return is_context_overflow(content)
    if error.status != 400:
        return False
    text = content.decode("utf-8", "replace")
    if "context length" in text or is_context_overflow(content):
        return True
    return "max_tokens" in text and not _BAD_PARAMETER.search(text) and not _asked_for_nothing(request)


def reason_of(error: ClientResponseError) -> str:
    """What the engine said, in at most 300 characters."""
    return getattr(error, "response_content", b"")[:300].decode("utf-8", "replace")


def _asked_for_nothing(request: dict[str, Any] | None) -> bool:
    asked = (request or {}).get("max_tokens")
    return isinstance(asked, int) and asked <= 0


def local_completion(model: str, finish_reason: str) -> dict[str, Any]:
    """An empty chat completion made here."""
    return {
        "id": LOCAL_COMPLETION_ID,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": None}},
        ],
    }


class PropagateOverflow:
    """Answers an engine's overflow error as the engine did: same status, same body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noting_send)
        except ClientResponseError as error:
            if started or not is_overflow(error):
                raise
            content: bytes = getattr(error, "response_content", b"")
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
            await send({"type": "http.response.start", "status": error.status, "headers": headers})
            await send({"type": "http.response.body", "body": content})
