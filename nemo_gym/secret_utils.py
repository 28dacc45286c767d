"""Keeping secrets out of what is shown."""

from nemo_gym.config.secrets import (
    MASK,
    Redactor,
    hide_secrets_in_overrides,
    looks_like_secret_key,
    recursively_hide_secrets,
    redacted,
)

__all__ = [
    "MASK",
    "Redactor",
    "hide_secrets_in_overrides",
    "looks_like_secret_key",
    "recursively_hide_secrets",
    "redacted",
]
