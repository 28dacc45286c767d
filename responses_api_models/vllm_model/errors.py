"""What goes wrong between a caller, this server and the engine."""

from __future__ import annotations

from fastapi import HTTPException

from nemo_gym.errors import GymError


class RefusedRequest(HTTPException, GymError, ValueError):
    """A request that this server can't serve as configured: a 400 that says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(400, reason)

    def __str__(self) -> str:
        return str(self.detail)


class MissingTokens(RuntimeError, GymError):
    """Token ids were to be returned, and the engine's answer has none, or contradicts itself."""


class StaleEndpoint(RuntimeError, GymError):
    """No engine has published its address for too long."""


class ReasoningParserMismatch(AssertionError, GymError):
    """What the config says about the engine's reasoning parser isn't so."""
