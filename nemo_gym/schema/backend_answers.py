"""What a model backend answered: what an HTTP error means for the next try, and whether a 200 holds an answer."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nemo_gym.schema.errors import InvalidAnswer

RATE_LIMIT_ERROR_CODES = [429, 502, 503, 504, 520]
RETRY_ERROR_CODES = [*RATE_LIMIT_ERROR_CODES, 404, 408, 500]

_INVALID_KEY_CODES = frozenset({"invalid_api_key", "invalid_api_token", "authentication_error"})
_INVALID_KEY_TEXTS = ("invalid api key", "incorrect api key")
_SPENT_CODES = frozenset({"budget_exceeded", "insufficient_quota"})
_OVERFLOW_CODES = frozenset({"context_length_exceeded"})
_OVERFLOW_TEXTS = ("context length", "context window", "maximum context")


_USERINFO = re.compile(r"(?<=://)[^/?#]*@")
_SHOWN_CHARS = 200
ModelT = TypeVar("ModelT", bound=BaseModel)


def without_userinfo(url: Any) -> str:
    """The URL as it may be shown: a password in it is nobody's business."""
    return _USERINFO.sub("", str(url))


def checked_answer(model: type[ModelT], answer: Any, *, base_url: str, what: str) -> ModelT:
    """The parsed body of a 200 as a model.

    Raises InvalidAnswer, one sentence with the backend's address and the first thing wrong, if it is no `what`.
    """
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        missing = first["type"] == "missing"
        fault = f"{place!r} is missing" if missing else f"{place}: {first['msg']}" if place else first["msg"]
        said = answer.get("error") if isinstance(answer, Mapping) else None
        error_field = f"; its error: {str(said)[:_SHOWN_CHARS]}" if said else ""
        backend = without_userinfo(base_url)
        raise InvalidAnswer(f"the backend at {backend} answered 200 with no {what}: {fault}{error_field}") from None


class Verdict(Enum):
    """What to do with an answer."""

    RETURN = "return"
    RETRY = "retry"
    RETRY_ONCE = "retry_once"
    TRIP = "trip"
    TRIP_AND_RETURN = "trip_and_return"


def _as_text(content: bytes | str) -> str:
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else content


def error_codes(content: bytes | str) -> set[str]:
    """`code` and `type` of an error body of the usual shape; empty for any other body."""
    try:
        body = json.loads(content)
    except ValueError:
        return set()
    error: Any = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, Mapping):
        return set()
    return {value for key in ("code", "type") if isinstance(value := error.get(key), str)}


def is_context_overflow(content: bytes | str) -> bool:
    """True if a backend says that the prompt doesn't fit its context: trying again can't help."""
    text = _as_text(content).lower()
    return not _OVERFLOW_CODES.isdisjoint(error_codes(content)) or any(phrase in text for phrase in _OVERFLOW_TEXTS)


def judge(status: int, content: bytes | str) -> Verdict:
    """The verdict on an answer, from its status and, for errors, its body."""
    if status in (401, 403):
        text = _as_text(content).lower()
        invalid = not _INVALID_KEY_CODES.isdisjoint(error_codes(content)) or any(
            phrase in text for phrase in _INVALID_KEY_TEXTS
        )
        return Verdict.TRIP_AND_RETURN if invalid else Verdict.RETURN
    if status == 429 and not _SPENT_CODES.isdisjoint(error_codes(content)):
        return Verdict.TRIP
    if status == 404:
        return Verdict.RETRY_ONCE
    if status == 500 and is_context_overflow(content):
        return Verdict.RETURN
    return Verdict.RETRY if status in RETRY_ERROR_CODES else Verdict.RETURN


def retry_after_seconds(headers: Any) -> float | None:
    """The wait a `Retry-After` header asks for, as seconds or as a date; None without a readable one."""
    value = headers.get("Retry-After") if isinstance(headers, Mapping) else None
    if not isinstance(value, str):
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
