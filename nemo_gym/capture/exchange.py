"""One model call as it is recorded: what was asked, what was answered, when, and how it ended."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from nemo_gym.capture.dialects import Dialect
from nemo_gym.capture.events import EndingScanner, is_only_comments
from nemo_gym.capture.outcome import (
    CONTEXT_LENGTH_EXCEEDED,
    FAILED,
    INCOMPLETE,
    TRUNCATED,
    UNPARSABLE,
    category_of_exception,
    category_of_status,
    is_local_overflow,
)
from nemo_gym.capture.reassembly import reconstruct_streamed_response

MAX_BODY_BYTES = 64 << 20
"""A request or response longer than this is recorded without its text."""

PAYLOAD_OMITTED = "payload_omitted"
"""The field of an exchange that says a payload was too long to keep."""

_PAYLOADS = ("request", "request_raw", "response_raw")
_KEPT_OF_RESPONSE = ("id", "object", "model", "status", "usage", "incomplete_details", "error", "stop_reason")
_EXECUTION = ("upstream_attempted", "response_source", "upstream_status_code", "local_response_reason")


class Body:
    """The bytes of a message as far as they are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    @property
    def is_too_long(self) -> bool:
        return self._size > self._limit

    def add(self, chunk: bytes) -> None:
        """Keep a further chunk, or nothing at all once there is too much."""
        self._size += len(chunk)
        if self.is_too_long:
            self._chunks.clear()
        elif chunk:
            self._chunks.append(chunk)

    def text(self) -> bytes:
        return b"".join(self._chunks)


@dataclass(eq=False)
class ObservedCall:
    """A model call while it goes by. Times are unix seconds, durations milliseconds."""

    dialect: Dialect
    model_server_name: str | None
    client_session_id: str | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    model_call_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_at: float = field(default_factory=time.time)
    status_code: int | None = None
    is_stream: bool = False
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._started = time.perf_counter()
        self._completed: float | None = None
        self._first_content: float | None = None
        self._request, self._response = Body(self.max_body_bytes), Body(self.max_body_bytes)
        self._scanner = EndingScanner(self.dialect)

    @property
    def has_ended(self) -> bool:
        """Whether a stream has sent the line that starts its last event."""
        return self._scanner.ending is not None

    def asked(self, chunk: bytes) -> None:
        """A part of the request has come in."""
        self._request.add(chunk)

    def answered(self, chunk: bytes) -> None:
        """A part of the answer is about to go out."""
        if not chunk:
            return
        self._response.add(chunk)
        if self.is_stream:
            self._scanner.feed(chunk)
        if self._first_content is None and not (self.is_stream and is_only_comments(chunk)):
            self._first_content = time.perf_counter()

    def completed(self) -> None:
        """Nothing more will come."""
        self._completed = time.perf_counter()
        self._scanner.finish()

    def exchange(self, execution: Mapping[str, Any]) -> dict[str, Any]:
        """The record of the call; `execution` is what the server noted about how it answered."""
        elapsed = (self._completed or time.perf_counter()) - self._started
        request, request_raw = _payload(self._request)
        response, response_raw = self._answer()
        server = self.model_server_name
        exchange: dict[str, Any] = {
            "model_call_id": self.model_call_id,
            "dialect": self.dialect,
            "model_ref": {"type": "responses_api_models", "name": server} if server is not None else None,
            "started_at": self.started_at,
            "completed_at": self.started_at + elapsed,
            "latency_ms": _milliseconds(elapsed),
            "latency_ttft_ms": _milliseconds(self._first_content and self._first_content - self._started),
            "status_code": self.status_code,
            "error_category": self._category(response is not None, execution),
            "request": request,
            "response": response,
        }
        optional = {
            "client_session_id": self.client_session_id,
            "request_raw": request_raw,
            "response_raw": response_raw,
            PAYLOAD_OMITTED: self._request.is_too_long or self._response.is_too_long or None,
            **{name: execution.get(name) for name in _EXECUTION},
        }
        return exchange | {name: value for name, value in optional.items() if value is not None}

    def _answer(self) -> tuple[dict[str, Any] | None, str | None]:
        if not self.is_stream:
            return _payload(self._response)
        raw = self._response.text()
        return reconstruct_streamed_response(raw, self.dialect), raw.decode("utf-8", "replace") if raw else None

    def _category(self, is_parsed: bool, execution: Mapping[str, Any]) -> str | None:
        if is_local_overflow(execution):
            return CONTEXT_LENGTH_EXCEEDED
        if self.error is not None:
            return category_of_exception(self.error)
        if self.status_code is None:
            return "exception"
        of_status = category_of_status(self.status_code)
        if of_status is not None:
            return of_status
        if self.is_stream:
            return {"completed": None, "incomplete": INCOMPLETE, "failed": FAILED, None: TRUNCATED}[
                self._scanner.ending
            ]
        lacks_object = not is_parsed and not self._response.is_too_long
        return UNPARSABLE if lacks_object and self.status_code < 300 else None


def _payload(body: Body) -> tuple[dict[str, Any] | None, str | None]:
    """`(JSON object, None)`, or `(None, the text that is none)`."""
    text = body.text()
    if not text:
        return None, None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    return (value, None) if isinstance(value, dict) else (None, text.decode("utf-8", "replace"))


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


def without_payloads(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """An exchange with only what identifies and counts the call."""
    short = {name: value for name, value in exchange.items() if name not in _PAYLOADS}
    response = exchange.get("response")
    kept = _outline(response) if isinstance(response, Mapping) else None
    return {**short, "request": None, "response": kept, PAYLOAD_OMITTED: True}


def _outline(response: Mapping[str, Any]) -> dict[str, Any]:
    outline = {name: response[name] for name in _KEPT_OF_RESPONSE if response.get(name) is not None}
    choices = response.get("choices")
    if isinstance(choices, list):
        names = ("index", "finish_reason")
        outline["choices"] = [
            {name: choice.get(name) for name in names} for choice in choices if isinstance(choice, dict)
        ]
    return outline
