"""What can go wrong with captured tokens, as one tree."""

from __future__ import annotations

from nemo_gym.errors import GymError


class TokenCaptureError(GymError):
    """Tokens of a rollout could not be captured, kept or put together."""


class TokenCaptureConfigError(TokenCaptureError, ValueError):
    """The `token_id_capture` block asks for something that can't be had."""


class InvalidRolloutIdError(TokenCaptureError, ValueError):
    """A rollout id that can't be part of a file's name."""


class FrozenRolloutError(TokenCaptureError, RuntimeError):
    """A rollout whose tokens have been handed over takes no more of them."""


class ConflictingEntryError(TokenCaptureError, ValueError):
    """Two different records for one model call."""


class IncompleteTokensError(TokenCaptureError, ValueError):
    """A response that carries some of a call's token fields, or more than one set of them."""


class LineageLookupError(TokenCaptureError, RuntimeError):
    """The call that a request continues could not be looked up."""


class ExternalCaptureError(TokenCaptureError, RuntimeError):
    """An inference worker that should have staged a call's tokens can't be asked to."""


class TooManyMaskedError(TokenCaptureError, RuntimeError):
    """More rollouts than allowed have tokens that can't be trained on."""
