"""What goes wrong between a caller, this server and the engine."""

from __future__ import annotations

from typing import ClassVar

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


class UnprovenPrefix(RuntimeError, GymError):
    """The engine was told which tokens a prompt has to begin with, and its answer doesn't show that it did."""


class ConflictingCapture(ValueError, GymError):
    """The model's settings and those of the token capture exclude each other."""


class ReasoningParserMismatch(AssertionError, GymError):
    """What the config says about the engine's reasoning parser isn't so."""

    refusal_status: ClassVar[int] = 400


class SeveralThinkBlocks(AssertionError, GymError):
    """An assistant message of parts with more than one think block: which of them is its reasoning?"""

    refusal_status: ClassVar[int] = 400
