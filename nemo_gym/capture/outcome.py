"""How a model call ended, in the words of `error_category`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
UNPARSABLE = "capture_parse_error"
TRUNCATED = "stream_truncated"
FAILED = "upstream_error"
INCOMPLETE = "incomplete"

_OF_STATUS = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    429: "rate_limit",
    504: "timeout",
}


def category_of_status(status: int) -> str | None:
    """The category of an HTTP status, None when it is no error."""
    if status < 400:
        return None
    return _OF_STATUS.get(status, "client_error" if status < 500 else FAILED)


def category_of_exception(error: BaseException) -> str:
    """The category of what a handler raised instead of answering."""
    name = type(error).__name__.lower()
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, TimeoutError) or "timeout" in name:
        return "timeout"
    return "connection" if "conn" in name else "exception"


def is_local_overflow(execution: Mapping[str, Any]) -> bool:
    """Whether the server answered by itself since the request is longer than the model's context."""
    return execution.get("local_response_reason") == CONTEXT_LENGTH_EXCEEDED
