"""Sealed tokens that say for which session an MCP client calls tools, and which of them it may call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import itsdangerous

from nemo_gym.serve.mcp_names import _MCP_TOKEN_SALT, NEMO_GYM_MCP_SESSION_TOKEN_HEADER
from nemo_gym.serve.sessions import MAX_AGE_SECONDS


class TokenError(ValueError):
    """A token is missing, forged or too old."""


@dataclass(frozen=True)
class Grant:
    """A session, and the names of the tools it may call; None for all of them."""

    session_id: str
    tools: tuple[str, ...] | None = None

    def allows(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools


class Tokens:
    """Seals and opens the tokens of one server; `secret` is the one its session cookies are signed with."""

    def __init__(self, secret: str) -> None:
        self._serializer = itsdangerous.URLSafeTimedSerializer(secret, salt=_MCP_TOKEN_SALT)

    def seal(self, grant: Grant) -> str:
        tools = None if grant.tools is None else list(grant.tools)
        sealed: str | bytes = self._serializer.dumps({"sid": grant.session_id, "tools": tools})
        return sealed.decode("ascii") if isinstance(sealed, bytes) else sealed

    def of_headers(self, headers: Mapping[str, str] | None) -> Grant | None:
        """The grant in the headers of a request, None without a token. TokenError for a bad one."""
        token = (headers or {}).get(NEMO_GYM_MCP_SESSION_TOKEN_HEADER)
        if not token:
            return None
        try:
            fields = self._serializer.loads(token, max_age=MAX_AGE_SECONDS)
            tools = fields["tools"]
            return Grant(str(fields["sid"]), None if tools is None else tuple(tools))
        except itsdangerous.SignatureExpired as error:
            raise TokenError(f"the {NEMO_GYM_MCP_SESSION_TOKEN_HEADER} is too old: seed a new session") from error
        except (itsdangerous.BadData, KeyError, TypeError) as error:
            raise TokenError(f"the {NEMO_GYM_MCP_SESSION_TOKEN_HEADER} is none of this server's") from error
