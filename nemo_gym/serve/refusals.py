"""What a model server answers to a request it understands but can't serve: a 4xx that says why, in the dialect asked.

An error class asks for it with `refusal_status`; every other exception stays a 500.
"""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import ClientResponseError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.serve.failures import CAUSE_HEADER, Cause, plain_text
from nemo_gym.serve.redaction import redact
from nemo_gym.serve.server_log import server_log

MESSAGES_PATH = "/v1/messages"
_MAX_SHOWN_CHARS = 2_000
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

_logger = server_log("nemo_gym.base_responses_api_model")


def refusal_status(error: BaseException) -> int | None:
    """The 4xx an error was made for; None if it is a failure of the server."""
    status = error.status_code if isinstance(error, HTTPException) else getattr(error, "refusal_status", None)
    return status if isinstance(status, int) and 400 <= status < 500 else None


def failure_text(error: BaseException) -> str:
    """What a client may read about an error: its message, or the backend's own words; secrets masked."""
    if isinstance(error, HTTPException):
        text = error.detail if isinstance(error.detail, str) else orjson.dumps(error.detail, default=str).decode()
    elif isinstance(error, ClientResponseError):
        text = f"the model's backend answered {error.status}: {plain_text(getattr(error, 'response_content', b''))}"
    else:
        text = str(error) or repr(error)
    return redact(text)[:_MAX_SHOWN_CHARS]


def anthropic_error(status: int, message: str) -> dict[str, Any]:
    """An error as the Messages API words it."""
    default = "invalid_request_error" if 400 <= status < 500 else "api_error"
    return {"type": "error", "error": {"type": _ANTHROPIC_TYPES.get(status, default), "message": message}}


def refusal(path: str, status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """A 4xx in the dialect of `path`; `detail` says the same to those who know FastAPI's errors."""
    if path.endswith(MESSAGES_PATH):
        content = anthropic_error(status, message)
    else:
        content = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}
    body = orjson.dumps({**content, "detail": message})
    return Response(body, status_code=status, media_type="application/json", headers=headers)


class Refusals:
    """Answers what a handler raises as a refusal; other exceptions pass through."""

    def __init__(self, app: ASGIApp, *, server_label: str) -> None:
        self.app = app
        self.label = server_label

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noting_send)
        except Exception as error:
            status = refusal_status(error)
            if started or status is None:
                raise
            message = failure_text(error)
            _logger.warning("%s: refused with %d: %s", self.label, status, message)
            cause = Cause(self.label, type(error).__name__, message[:500], status)
            headers = {CAUSE_HEADER: cause.header().decode("ascii")}
            await refusal(scope["path"], status, message, headers)(scope, receive, send)
