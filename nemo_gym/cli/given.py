"""What was given to a command that reads no config: its overrides, straight from `sys.argv`."""

import sys
from collections.abc import Collection

from nemo_gym.cli.overrides import unquoted
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.hints import did_you_mean

ALWAYS_TAKEN = ("verbose",)


def given(taken: Collection[str], *, refusal: str | None = None) -> dict[str, str]:
    """The values given, by key, as text. Raises ConfigError for a key the command doesn't take: `refusal` (with the
    keys put behind it), or a suggestion."""
    values = {}
    for token in sys.argv[1:]:
        key, _, value = token.lstrip("+").partition("=")
        values[key] = unquoted(value)
    known = {*taken, *ALWAYS_TAKEN}
    unknown = [key for key in values if key not in known]
    if unknown and refusal is not None:
        raise ConfigError(f"{refusal}: {', '.join(unknown)}.")
    if unknown:
        raise ConfigError(
            f"This command reads no config and knows nothing of {unknown[0]!r}.{did_you_mean(unknown[0], known)}"
        )
    return {key: value for key, value in values.items() if key in taken and value != "null"}


def is_on(values: dict[str, str], key: str) -> bool:
    """Whether a yes/no key was given as true."""
    return values.get(key, "").lower() == "true"
