"""Sealed tokens that say for which session an MCP client calls tools, and which of them it may call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import itsdangerous

from nemo_gym.serve.lost_sessions import GENERATION_KEY, LOST_TEXT
from nemo_gym.serve.mcp_names import _MCP_TOKEN_SALT, NEMO_GYM_MCP_SESSION_TOKEN_HEADER
from nemo_gym.serve.sessions import MAX_AGE_SECONDS


class TokenError(ValueError):
    """A token is missing, forged or too old."""


class LostTokenError(TokenError):
    """A token is of a session that an earlier process of this server held in its memory."""


@dataclass(frozen=True)
class Grant:
    """A session, and the names of the tools it may call; None for all of them."""

    session_id: str
    tools: tuple[str, ...] | None = None

    def allows(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools


class Tokens:
    """Seals and opens the tokens of one server; `secret` is the one its session cookies are signed with.

    `generation` tells the sessions of this process from those of the ones before it, where they are lost with it.
    """

    def __init__(self, secret: str, generation: int = 0) -> None:
        self._generation = generation
        self._serializer = itsdangerous.URLSafeTimedSerializer(secret, salt=_MCP_TOKEN_SALT)

    def seal(self, grant: Grant) -> str:
        tools = None if grant.tools is None else list(grant.tools)
        fields = {"sid": grant.session_id, "tools": tools, GENERATION_KEY: self._generation}
        sealed: str | bytes = self._serializer.dumps(fields)
        return sealed.decode("ascii") if isinstance(sealed, bytes) else sealed

    def of_headers(self, headers: Mapping[str, str] | None) -> Grant | None:
        """The grant in the headers of a request, None without a token.

        TokenError for a bad one, LostTokenError for one of an earlier process.
        """
        token = (headers or {}).get(NEMO_GYM_MCP_SESSION_TOKEN_HEADER)
        if not token:
            return None
        try:
            fields = self._serializer.loads(token, max_age=MAX_AGE_SECONDS)
            tools = fields["tools"]
            grant = Grant(str(fields["sid"]), None if tools is None else tuple(tools))
            generation = int(fields[GENERATION_KEY])
        except itsdangerous.SignatureExpired as error:
            raise TokenError(f"the {NEMO_GYM_MCP_SESSION_TOKEN_HEADER} is too old: seed a new session") from error
        except (itsdangerous.BadData, KeyError, TypeError, ValueError) as error:
            raise TokenError(f"the {NEMO_GYM_MCP_SESSION_TOKEN_HEADER} is none of this server's") from error
        if generation != self._generation:
            raise LostTokenError(LOST_TEXT)
        return grant
