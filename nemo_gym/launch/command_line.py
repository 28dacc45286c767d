"""A command line as it may be shown: without the secrets that were typed into it."""

from __future__ import annotations

from collections.abc import Sequence

from nemo_gym.config.secrets import MASK, hide_secrets_in_overrides, looks_like_secret_key


def shown_command(words: Sequence[str]) -> str:
    """The words on one line; values of secret overrides and flags are masked."""
    shown = hide_secrets_in_overrides(" ".join(word.split()) for word in words)
    for index, word in enumerate(shown[:-1]):
        if word.startswith("--") and "=" not in word and looks_like_secret_key(word.lstrip("-")):
            shown[index + 1] = MASK
    return " ".join(shown)
