"""Which rollout the running code works for: the id, how it travels in a URL, and how it is derived from a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.config.keys import (
    ATTEMPT_INDEX_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.serve.guards import refuse
from nemo_gym.serve.redaction import shown

ROLLOUT_PATH_PREFIX = "ng-rollout"
TOKEN_CAPTURE_PATH_SEGMENT = "training-token-capture"
ROLLOUT_ID_PATTERN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
MAX_ROLLOUT_ID_CHARS = 200
"""Ids are names of files, which end in more than the id."""
_RULE = (
    f"an id of a rollout starts with a letter or digit, holds only letters, digits, '.', '_' and '-', and has at most "
    f"{MAX_ROLLOUT_ID_CHARS} characters."
)

_rollout_id: ContextVar[str | None] = ContextVar("nemo_gym_rollout_id", default=None)


def current_rollout_id() -> str | None:
    """The id of the rollout the current task works for; None outside of one."""
    return _rollout_id.get()


@contextmanager
def rollout_context(rollout_id: str | None) -> Iterator[None]:
    """Make `rollout_id` the current one; nests."""
    token = _rollout_id.set(rollout_id)
    try:
        yield
    finally:
        _rollout_id.reset(token)


def rollout_path_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """`/ng-rollout/<id>[/training-token-capture]`, or nothing without an id."""
    if not rollout_id:
        return ""
    segment = f"/{TOKEN_CAPTURE_PATH_SEGMENT}" if token_capture else ""
    return f"/{ROLLOUT_PATH_PREFIX}/{quote(rollout_id, safe='')}{segment}"


def apply_rollout_prefix(base_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """A server's base URL with the rollout's prefix appended; no trailing slash."""
    return base_url.rstrip("/") + rollout_path_prefix(rollout_id, token_capture=token_capture)


def maybe_rollout_id_from_run_body(body: BaseModel | Mapping[str, Any] | None) -> str | None:
    """The id of the rollout a `/run` body asks for; None when the body names none.

    An explicit `_ng_rollout_id` wins, else `<task index>-<rollout index>`; an attempt above 0 appends `-a<n>`. Raises
    RolloutIdError, a ValueError, when that makes no id.
    """
    fields = _fields_of(body)
    rollout_id = fields.get(ROLLOUT_ID_KEY_NAME)
    named_by = ROLLOUT_ID_KEY_NAME
    if rollout_id is None:
        task, rollout = fields.get(TASK_INDEX_KEY_NAME), fields.get(ROLLOUT_INDEX_KEY_NAME)
        if task is None or rollout is None:
            return None
        rollout_id, named_by = f"{task}-{rollout}", f"{TASK_INDEX_KEY_NAME}-{ROLLOUT_INDEX_KEY_NAME}"
    attempt = fields.get(ATTEMPT_INDEX_KEY_NAME)
    if isinstance(rollout_id, str) and isinstance(attempt, int) and attempt > 0:
        rollout_id = f"{rollout_id}-a{attempt}"
    if not is_rollout_id(rollout_id):
        raise RolloutIdError(f"{named_by} is {shown(repr(rollout_id), 200)}: {_RULE}")
    return str(rollout_id)


def is_rollout_id(value: object) -> bool:
    """Whether a value may name a rollout, its files and its URLs."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_ROLLOUT_ID_CHARS
        and ROLLOUT_ID_PATTERN.fullmatch(value) is not None
    )


class RolloutIdError(HTTPException, ValueError):
    """What should name a rollout can't; a server answers 422."""

    def __init__(self, message: str) -> None:
        super().__init__(422, message)

    def __str__(self) -> str:
        return self.detail


def _fields_of(body: BaseModel | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if body is None:
        return {}
    if isinstance(body, Mapping):
        return body
    extra = body.model_extra or {}
    explicit = getattr(body, "capture_rollout_id", None)
    return {**extra, ROLLOUT_ID_KEY_NAME: explicit} if explicit is not None else extra


class RolloutContextMiddleware:
    """Strips `/ng-rollout/<id>` (and the token capture segment behind it) from the path and sets the context.

    The scope gets `nemo_gym.rollout_id` and `nemo_gym.token_capture`, so that capture can tell what was stripped.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = split_rollout_prefix(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        rollout_id, token_capture, path = found
        if not is_rollout_id(rollout_id):
            await _refuse_path(send)
            return
        scope = {
            **scope,
            "path": path,
            "raw_path": quote(path).encode("ascii"),
            "nemo_gym.rollout_id": rollout_id,
            "nemo_gym.token_capture": token_capture,
        }
        with rollout_context(rollout_id):
            await self.app(scope, receive, send)


class RolloutIdGuard:
    """Answers 400 to `/ng-rollout/<id>/…` with what is no id; for apps whose routes take the prefix themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = split_rollout_prefix(scope["path"]) if scope["type"] == "http" else None
        if found is not None and not is_rollout_id(found[0]):
            await _refuse_path(send)
            return
        await self.app(scope, receive, send)


async def _refuse_path(send: Send) -> None:
    await refuse(send, 400, f"The path names no rollout: {_RULE}")


def split_rollout_prefix(path: str) -> tuple[str, bool, str] | None:
    """`(rollout id, token capture asked for, the path without the prefix)`; None when there is no prefix."""
    if not path.startswith(f"/{ROLLOUT_PATH_PREFIX}/"):
        return None
    _, _, rollout_id, *rest = path.split("/")
    if not rollout_id or not rest:
        return None
    token_capture = rest[0] == TOKEN_CAPTURE_PATH_SEGMENT and len(rest) > 1
    return rollout_id, token_capture, "/" + "/".join(rest[1:] if token_capture else rest)
