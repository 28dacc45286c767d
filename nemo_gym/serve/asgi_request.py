"""A request in aiohttp's options, as an ASGI app of this process gets it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from aiohttp import ClientTimeout

from nemo_gym.serve.cookies import cookie_header
from nemo_gym.serve.deadline import DEADLINE_HEADER, announced, call_limit, time_for_call

Headers = list[tuple[bytes, bytes]]

_JSON = (b"content-type", b"application/json")
_DEADLINE = DEADLINE_HEADER.lower().encode("ascii")


def asgi_request(options: Mapping[str, Any], authority: bytes) -> tuple[bytes, Headers, float | None]:
    """The body, the headers (names in lower case), and the seconds that the request may take, None for ever.

    The receiver is told of the current deadline. Raises DeadlineExceededError when it has passed.
    """
    headers, is_json = _given(options.get("headers")), options.get("json") is not None
    body = orjson.dumps(options["json"]) if is_json else _bytes(options.get("data"))
    if is_json:
        headers = [*_without(headers, b"content-type"), _JSON]
    if cookies := options.get("cookies"):
        headers = _with_cookies(headers, cookie_header(cookies))
    seconds, left = _seconds(options["timeout"] if "timeout" in options else call_limit.get()), time_for_call()
    if left is not None:
        seconds = left if seconds is None else min(seconds, left)
        headers = [*_without(headers, _DEADLINE), (_DEADLINE, announced(left).encode("ascii"))]
    if not any(name == b"host" for name, _ in headers):
        headers = [(b"host", authority), *headers]
    return body, [*headers, (b"content-length", b"%d" % len(body))], seconds


def _given(headers: Any) -> Headers:
    pairs = headers.items() if isinstance(headers, dict | Mapping) else headers or ()
    return [(_name(name), value.encode("latin-1")) for name, value in pairs]


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    return name.lower().encode("latin-1")


def _without(headers: Headers, unwanted: bytes) -> Headers:
    return [header for header in headers if header[0] != unwanted]


def _with_cookies(headers: Headers, cookies: str) -> Headers:
    """As aiohttp does: after those that a header of the caller's own names."""
    own = [value for name, value in headers if name == b"cookie"]
    named = b"; ".join([*own, *([cookies.encode("latin-1")] if cookies else [])])
    return [*_without(headers, b"cookie"), *([(b"cookie", named)] if named else [])]


def _bytes(data: Any) -> bytes:
    return b"" if data is None else data.encode("utf-8") if isinstance(data, str) else bytes(data)


def _seconds(timeout: Any) -> float | None:
    total = timeout.total if isinstance(timeout, ClientTimeout) else timeout
    return total if isinstance(total, int | float) and total > 0 else None
