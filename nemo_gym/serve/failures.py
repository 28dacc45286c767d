"""What a server answers when a handler fails: a JSON string a person can read, and the cause for programs.

The header `X-NeMo-Gym-Cause` names the server where the failure began. Servers that fail because of it pass the header
on unchanged, so that the caller at the end of a chain sees the origin and not the chain.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from aiohttp import ClientError, ClientResponseError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.errors import GymError
from nemo_gym.schema.endpoint_errors import is_no_http
from nemo_gym.schema.failure_kinds import TRANSPORT_PEER_DROP
from nemo_gym.schema.pressure import Pressure, unwatch_pressure, watch_pressure
from nemo_gym.serve.deadline import DeadlineExceededError
from nemo_gym.serve.redaction import encodable, redact, shown
from nemo_gym.serve.retries import Fault, transport_failure_kind
from nemo_gym.serve.server_log import server_log

CAUSE_HEADER = "X-NeMo-Gym-Cause"
MAX_LOGGED_CHARS = 2_000
MAX_BODY_CHARS = 20_000
_MAX_CAUSE_CHARS = 500

_logger = server_log("nemo_gym.server_utils")


@dataclass(frozen=True)
class Cause:
    """Where a failure began: the server, the error's type there, and its message (at most 500 characters).

    `status` is what a foreign peer answered; `kind` is a registered failure kind, where one is known; `stage` is the
    part of the rollout that took too long.
    """

    server: str
    error: str
    message: str
    status: int | None = None
    kind: str | None = None
    stage: str | None = None

    def header(self) -> bytes:
        """As a header value: JSON in ASCII."""
        return json.dumps({key: value for key, value in asdict(self).items() if value is not None}).encode("ascii")

    @classmethod
    def of_headers(cls, headers: Any) -> Cause | None:
        """The cause another server reported; None when there is none that can be read."""
        try:
            fields = json.loads(headers[CAUSE_HEADER])
            server, error, message = (fields[name] for name in ("server", "error", "message"))
            return cls(server, error, message, *(fields.get(name) for name in ("status", "kind", "stage")))
        except (KeyError, TypeError, ValueError):
            return None


class ExceptionMiddleware:
    """Turns what a handler raises into a 500 with a JSON string that names this server; a passed deadline into a 504.

    An answer also says whether a backend asked for quiet while it was made, here or at a server that was called.

    HTTP exceptions and validation errors never get here: FastAPI answers them.
    """

    def __init__(self, app: ASGIApp, *, server_label: str) -> None:
        self.app = app
        self.label = server_label

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, pressure = False, Pressure()

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message if pressure.seconds is None else pressure.noted_on(dict(message)))

        token = watch_pressure(pressure)
        try:
            await self.app(scope, receive, noting_send)
        except BaseException as error:
            text, cause = self._describe(error)
            if not started:
                await _send_failure(noting_send, _status_of(error, cause), text, cause)
        finally:
            unwatch_pressure(token)

    def _describe(self, error: BaseException) -> tuple[str, Cause]:
        if isinstance(error, ClientResponseError) and not _is_the_clients_own(error):
            return self._describe_response_error(error)
        if isinstance(error, asyncio.CancelledError):
            return self._own(error, "The request was cancelled.")
        if isinstance(error, ClientDisconnect):
            return self._own(error, "The client disconnected.")
        if isinstance(error, DeadlineExceededError):
            return self._own(error, f"{self.label}: {error}")
        if isinstance(error, ClientError):
            told = _told_by_client(error)
            _logger.warning("%s", redact(f"{self.label}: {told}"))
            return told if isinstance(error, ClientResponseError) else repr(error), self._own(error, told)[1]
        if isinstance(error, Exception):
            print(shown("".join(traceback.format_exception(error)), MAX_BODY_CHARS).rstrip("\n"), file=sys.stderr)
            return self._own(error, repr(error))
        return self._own(error, "An unknown error occurred.")

    def _own(self, error: BaseException, text: str) -> tuple[str, Cause]:
        kind, stage = _kind_of(error), getattr(getattr(error, "stage", None), "code", None)
        return text, Cause(self.label, type(error).__name__, redact(text)[:_MAX_CAUSE_CHARS], kind=kind, stage=stage)

    def _describe_response_error(self, error: ClientResponseError) -> tuple[str, Cause]:
        content = getattr(error, "response_content", None)
        if not isinstance(content, bytes):
            problem = AssertionError("use nemo_gym.server_utils.raise_for_status, which keeps the answer's body")
            return self._own(problem, repr(problem))
        answer = plain_text(content)
        method, url = error.request_info.method, str(error.request_info.url).split("?", 1)[0]
        _logger.warning("%s", redact(f"{self.label}: {method} {url} answered {error.status}: {_cut(answer)}"))
        text = f"{self.label}: {method} {url} answered {error.status}: {answer}"
        cause = Cause.of_headers(error.headers)
        return text, cause or Cause(self.label, type(error).__name__, redact(answer)[:_MAX_CAUSE_CHARS], error.status)


def _is_the_clients_own(error: ClientResponseError) -> bool:
    """Whether the client, not a peer's status, is what it tells of: no HTTP, endless redirects, a wrong media type."""
    return is_no_http(error) or (type(error) is not ClientResponseError and not hasattr(error, "response_content"))


def _told_by_client(error: ClientError) -> str:
    if not isinstance(error, ClientResponseError):
        return f"{type(error).__name__}: {error}"
    asked = f"{error.request_info.method} {str(error.request_info.url).split('?', 1)[0]}"
    said = " ".join(error.message.split())
    if is_no_http(error):
        return f"{asked}: what came back is no HTTP that can be read: {said}"
    return f"{asked}: {type(error).__name__}: {said}"


def _is_stopped() -> bool:
    """Whether the running task is being cancelled: the server stops, which to callers is a connection that breaks."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _kind_of(error: BaseException) -> str | None:
    """The failure kind an error names itself, else that of the transport it comes from; a timeout of ours isn't one."""
    if isinstance(error, asyncio.CancelledError):
        return TRANSPORT_PEER_DROP if _is_stopped() else None
    named = getattr(error, "failure_kind", None)
    if isinstance(named, str):
        return named
    is_own = isinstance(error, GymError) and not isinstance(error, DeadlineExceededError)
    return None if is_own else transport_failure_kind(error)


def plain_text(content: bytes) -> str:
    """An error body as text; the JSON string of another server is unwrapped, so that escapes don't pile up."""
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, str) else content.decode("utf-8", errors="replace")


def _status_of(error: BaseException, cause: Cause) -> int:
    """504 where time ran out, here or further on; 500 for everything else."""
    was_late = cause.kind == Fault.TIMED_OUT.value or cause.stage is not None
    is_late_elsewhere = getattr(error, "status", None) == 504 and was_late
    return 504 if isinstance(error, DeadlineExceededError) or is_late_elsewhere else 500


async def _send_failure(send: Send, status: int, text: str, cause: Cause) -> None:
    content = orjson.dumps(encodable(_cut(redact(text), MAX_BODY_CHARS)))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
        (CAUSE_HEADER.lower().encode("ascii"), cause.header()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _cut(text: str, limit: int = MAX_LOGGED_CHARS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
