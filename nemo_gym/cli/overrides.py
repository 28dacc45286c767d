"""The tokens a command reads its configuration from: quoting, merging and ordering them.

A flag is only sugar for an override in Hydra's grammar, so a flag's value has to survive that grammar.
"""

import re
from collections.abc import Iterable, Sequence

from nemo_gym.config.override_text import QUOTED, quoted, text_value

__all__ = [
    "CONFIG_PATHS_KEY",
    "VERBOSE_OVERRIDE",
    "config_paths_of",
    "config_paths_override",
    "is_override",
    "list_value",
    "merged",
    "override_key",
    "quoted",
    "text_value",
    "unquoted",
]

CONFIG_PATHS_KEY = "config_paths"
VERBOSE_OVERRIDE = "+verbose=true"

_OVERRIDE_KEY = re.compile(r"(?:\+{1,2}|~)?([^=]+)=")


def is_override(token: str) -> bool:
    """Whether a bare command-line token is an override rather than a word."""
    return not token.startswith("-") and (token.startswith(("+", "~")) or "=" in token)


def override_key(token: str) -> str | None:
    """The dotted key an override sets, or None when it sets none."""
    matched = _OVERRIDE_KEY.match(token)
    return matched[1] if matched else None


def list_value(items: Iterable[str]) -> str:
    """A list of strings, every one quoted."""
    return "[" + ",".join(quoted(item) for item in items) + "]"


def config_paths_override(paths: Iterable[str]) -> str:
    """The one token that names the config files, in order of precedence (last wins)."""
    return f"+{CONFIG_PATHS_KEY}=[{','.join(text_value(path) for path in paths)}]"


def config_paths_of(token: str) -> list[str] | None:
    """The paths of a `+config_paths=` token; None for any other token and for one only the config parser can read."""
    prefix = f"+{CONFIG_PATHS_KEY}="
    if not token.startswith(prefix):
        return None
    value = token.removeprefix(prefix)
    if value.startswith("[") and value.endswith("]"):
        return _split_list(value[1:-1])
    return [unquoted(value)] if value and not re.search(r"^[$\[{]|,", value) else None


def _split_list(body: str) -> list[str]:
    items = re.findall(r"""(?:"(?:\\.|[^"])*"|'(?:\\.|[^'])*'|[^,])+""", body)
    return [unquoted(item.strip()) for item in items if item.strip()]


def unquoted(text: str) -> str:
    """What a quoted string of the override grammar says; any other text as it is."""
    if not QUOTED.fullmatch(text):
        return text
    return re.sub(r"(\\+)(?=" + text[0] + r"|$)", lambda run: "\\" * (len(run[1]) // 2), text[1:-1])


def merged(translated: Sequence[str], raw: Sequence[str], *, verbose: bool) -> list[str]:
    """One list of overrides: verbosity, config files, flags, then what was typed raw.

    Every readable `+config_paths=` token joins one list, since the grammar refuses to add a key twice. For the same
    reason a flag steps aside when its key is also typed raw: what was typed raw wins.
    """
    raw_keys = {override_key(token) for token in raw if token.startswith("+") and not token.startswith("++")}
    paths: list[str] = []
    flags: list[str] = []
    typed: list[str] = []
    for tokens, kept in ((translated, flags), (raw, typed)):
        for token in tokens:
            found = config_paths_of(token)
            if found is not None:
                paths.extend(found)
            elif kept is typed or override_key(token) not in raw_keys:
                kept.append(token)
    head = [VERBOSE_OVERRIDE] if verbose and override_key(VERBOSE_OVERRIDE) not in raw_keys else []
    return [*head, *([config_paths_override(paths)] if paths else []), *flags, *typed]
