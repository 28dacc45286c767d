"""The signed session cookie: which session a request belongs to.

Wire format is Starlette's (base64 JSON, timestamp signature), so cookies of both can be read by both given the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import itsdangerous
import itsdangerous.encoding
from starlette.middleware.sessions import Session
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSION_ID_KEY = "session_id"
MAX_AGE_SECONDS = 14 * 24 * 60 * 60
_REMEMBERED_COOKIES = 16_384
_MAX_REMEMBERED_CHARS = 4_096
"""What browsers keep of a cookie; longer ones, which anybody may send, are read anew each time."""

_process_secret = secrets.token_bytes(32)
_session_id: ContextVar[str | None] = ContextVar("nemo_gym_session_id", default=None)


def current_session_id() -> str | None:
    """The id of the session the current request belongs to; None outside of one."""
    return _session_id.get()


@contextmanager
def within_session(session_id: str) -> Iterator[None]:
    """Make `session_id` the current session, for work that came another way than with its cookie."""
    token = _session_id.set(session_id)
    try:
        yield
    finally:
        _session_id.reset(token)


def signing_key(name: str, run_token: str | None) -> str:
    """The secret that signs cookies called `name`: derived from the run's token, so that every worker has the same.

    Without a token it is random and lives as long as the process (and those forked from it).
    """
    master = run_token.encode("utf-8") if run_token else _process_secret
    return hmac.new(master, b"nemo-gym-session-cookie:" + name.encode("utf-8"), hashlib.sha256).hexdigest()


def _new_id() -> str:
    """A random UUID (version 4), in half the time that `uuid4` takes."""
    bits = int.from_bytes(os.urandom(16), "big") & _ID_BITS | _ID_VERSION
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_ID_BITS = ~(0xF000 << 64 | 0xC000 << 48)
_ID_VERSION = 0x4000 << 64 | 0x8000 << 48


def _text_of(session: Session) -> str:
    """Its JSON text; nearly all say nothing but their id."""
    own = session.get(SESSION_ID_KEY) if len(session) == 1 else None
    if type(own) is str and _IS_PLAIN(own):
        return f'{{"{SESSION_ID_KEY}": "{own}"}}'
    return json.dumps(session)


_IS_PLAIN = re.compile(r"[\w-]*", re.ASCII).fullmatch


class _Signer(itsdangerous.TimestampSigner):
    """Signs what its parent would, with a key derived once, by the one-shot HMAC, in a third of the time."""

    def __init__(self, secret_key: str) -> None:
        super().__init__(secret_key)
        self._key = self.derive_key()

    def get_signature(self, value: str | bytes) -> bytes:
        signed = value if isinstance(value, bytes) else value.encode("utf-8")
        return urlsafe_b64encode(hmac.digest(self._key, signed, "sha1")).rstrip(b"=")

    def sign(self, value: str | bytes) -> bytes:
        dated = b"%b.%b" % (value if isinstance(value, bytes) else value.encode("utf-8"), _date(self.get_timestamp()))
        return b"%b.%b" % (dated, self.get_signature(dated))


@lru_cache(maxsize=4)
def _date(timestamp: int) -> bytes:
    return itsdangerous.encoding.base64_encode(itsdangerous.encoding.int_to_bytes(timestamp))


class SessionMiddleware:
    """Gives every request a session with an id, and sends its cookie with every response.

    A cookie that came in and still says the same goes out as it came, without being signed again.
    """

    def __init__(self, app: ASGIApp, *, secret_key: str, session_cookie: str) -> None:
        self.app = app
        self.cookie_name = session_cookie
        self._marker = f"{session_cookie}=".encode("latin-1")
        self._signer = _Signer(secret_key)
        self._remembered = lru_cache(maxsize=_REMEMBERED_COOKIES)(self._open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        cookie = self._cookie_of(scope)
        payload = self._payload(cookie)
        session = Session(json.loads(payload)) if payload else Session()
        if SESSION_ID_KEY not in session:
            session[SESSION_ID_KEY] = _new_id()
        scope["session"] = session

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                header = self._header(scope["session"], cookie, payload)
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", header)]
            await send(message)

        token = _session_id.set(session[SESSION_ID_KEY])
        try:
            await self.app(scope, receive, send_with_cookie)
        finally:
            _session_id.reset(token)

    def _cookie_of(self, scope: Scope) -> str | None:
        for name, value in scope["headers"]:
            if name == b"cookie" and self._marker in value:
                return cookie_parser(value.decode("latin-1")).get(self.cookie_name)
        return None

    def _payload(self, cookie: str | None) -> str | None:
        """The session's JSON text in a cookie of ours that is neither forged nor expired nor due for a new date."""
        if cookie is None:
            return None
        payload, signed_at = self._opened(cookie)
        return payload if time.time() - signed_at < MAX_AGE_SECONDS else None

    def _opened(self, cookie: str) -> tuple[str | None, float]:
        return (self._remembered if len(cookie) <= _MAX_REMEMBERED_CHARS else self._open)(cookie)

    def _open(self, cookie: str) -> tuple[str | None, float]:
        try:
            data, signed_at = self._signer.unsign(cookie, return_timestamp=True)
            text = b64decode(data).decode("utf-8")
            return (text, signed_at.timestamp()) if isinstance(json.loads(text), dict) else (None, 0.0)
        except (itsdangerous.BadSignature, ValueError):
            return None, 0.0

    def _header(self, session: Session, cookie: str | None, payload: str | None) -> bytes:
        text = _text_of(session)
        if cookie is None or text != payload or self._is_old(cookie):
            cookie = self._signer.sign(b64encode(text.encode("utf-8"))).decode("ascii")
        return f"{self.cookie_name}={cookie}; path=/; Max-Age={MAX_AGE_SECONDS}; httponly; samesite=lax".encode(
            "latin-1"
        )

    def _is_old(self, cookie: str) -> bool:
        return time.time() - self._opened(cookie)[1] > MAX_AGE_SECONDS / 2
