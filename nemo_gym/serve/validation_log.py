"""A log line for every request that fails validation: where it is wrong, bounded and safe to print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from nemo_gym.serve.redaction import redact
from nemo_gym.serve.server_log import server_log
from nemo_gym.serve.validation_errors import listed

MAX_ERRORS = 20
MAX_LOC_ITEMS = 8
MAX_TEXT_CHARS = 256
MAX_BODY_CHARS = 4_096
_TRUNCATED = "...<truncated>"

_logger = server_log("nemo_gym.server_utils")


async def log_and_answer_422(request: Request, error: Exception) -> Response:
    """A 422 in FastAPI's words, logged first; a failing log never changes the answer."""
    problem = cast(RequestValidationError, error)
    try:
        await _log(request, problem.errors())
    except Exception:
        _logger.debug("A validation error could not be logged.", exc_info=True)
    content = orjson.dumps(listed(problem.errors()), option=orjson.OPT_NON_STR_KEYS)
    return Response(content, status_code=422, media_type="application/json")


async def _log(request: Request, errors: Sequence[Any]) -> None:
    fields: dict[str, Any] = {
        "validation_error_count": len(errors),
        "validation_errors": [_summary(item) for item in errors[:MAX_ERRORS]],
        "validation_errors_truncated": len(errors) > MAX_ERRORS,
    }
    if any(tuple(item.get("loc", ()))[:1] == ("body",) for item in errors):
        fields |= await _body_fields(request)
    where = f"{request.method} {request.url.path}"
    _logger.warning("%s: request validation failed: %s", where, fields["validation_errors"], extra=fields)


def _summary(item: dict[str, Any]) -> dict[str, Any]:
    loc = [_safe(part) for part in item.get("loc", ())[:MAX_LOC_ITEMS]]
    return {"type": _safe(item.get("type")), "loc": loc, "msg": _safe(item.get("msg"))}


async def _body_fields(request: Request) -> dict[str, Any]:
    body = await request.body()
    text = redact(body[: MAX_BODY_CHARS + 64].decode("utf-8", errors="replace"))
    quoted = json.dumps(text)
    truncated = len(quoted) > MAX_BODY_CHARS or len(body) > MAX_BODY_CHARS
    return {
        "request_body_size_bytes": len(body),
        "request_body_prefix": quoted[:MAX_BODY_CHARS],
        "request_body_truncated": truncated,
    }


def _safe(value: Any) -> Any:
    """A value that can't forge log lines: text escaped and cut, numbers as they are, the rest by its type's name."""
    if isinstance(value, bool | int) or value is None:
        return value
    if not isinstance(value, str):
        return f"<{type(value).__name__}>"
    escaped = json.dumps(redact(value[: MAX_TEXT_CHARS * 4]))[1:-1]
    if len(escaped) <= MAX_TEXT_CHARS:
        return escaped
    return escaped[: MAX_TEXT_CHARS - len(_TRUNCATED)] + _TRUNCATED
