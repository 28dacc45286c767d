"""Sessions of an earlier process of a server, which went with its memory: whoever comes back for one is told so."""

from __future__ import annotations

import os

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.schema.failure_kinds import SESSION_LOST
from nemo_gym.serve.failures import CAUSE_HEADER, Cause

GENERATION_KEY = "generation"
"""Which process of the server, counted from 0, opened a session; part of its cookie from 1."""


LOST_TEXT = f"{SESSION_LOST}: the session went with an earlier process of this server; run the rollout again."


def own_generation() -> int:
    """How often this server was started again before this process, in this run."""
    text = os.environ.get(GENERATION_ENV, "")
    return int(text) if text.isdecimal() else 0


class LostSessionMiddleware:
    """Answers 410 to requests of sessions that an earlier process opened; `session_lost` is the failure's kind.

    It has its place within `SessionMiddleware`. Opening a session always works.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        session_cookie: str,
        generation: int,
        opening_paths: tuple[str, ...] = ("/seed_session",),
    ) -> None:
        self.app = app
        self._server = session_cookie
        self._marker = f"{session_cookie}=".encode("latin-1")
        self._generation = generation
        self._opening_paths = opening_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["session"].get(GENERATION_KEY) != self._generation:
            if self._came_with_cookie(scope) and not scope["path"].endswith(self._opening_paths):
                await self._refuse(send)
                return
            scope["session"][GENERATION_KEY] = self._generation
        await self.app(scope, receive, send)

    def _came_with_cookie(self, scope: Scope) -> bool:
        return any(name == b"cookie" and self._marker in value for name, value in scope["headers"])

    async def _refuse(self, send: Send) -> None:
        cause = Cause(self._server, "SessionLostError", LOST_TEXT, 410, SESSION_LOST).header()
        content = orjson.dumps({"detail": LOST_TEXT})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            (CAUSE_HEADER.lower().encode("ascii"), cause),
        ]
        await send({"type": "http.response.start", "status": 410, "headers": headers})
        await send({"type": "http.response.body", "body": content})
