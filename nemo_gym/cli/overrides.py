"""The tokens a command reads its configuration from: quoting, merging and ordering them.

A flag is only sugar for an override in Hydra's grammar, so a flag's value has to survive that grammar.
"""

import re
from collections.abc import Iterable, Sequence

CONFIG_PATHS_KEY = "config_paths"
VERBOSE_OVERRIDE = "+verbose=true"

_PLAIN = re.compile(r"[A-Za-z0-9_/.%*@?|:+-]+")
_QUOTED = re.compile(r"""(['"])(?:\\.|(?!\1).)*\1""", re.DOTALL)
_OVERRIDE_KEY = re.compile(r"(?:\+{1,2}|~)?([^=]+)=")
_NOT_TEXT = frozenset({"true", "false", "null", "inf", "+inf", "-inf", "nan", "+nan", "-nan"})


def is_override(token: str) -> bool:
    """Whether a bare command-line token is an override rather than a word."""
    return not token.startswith("-") and (token.startswith(("+", "~")) or "=" in token)


def override_key(token: str) -> str | None:
    """The dotted key an override sets, or None when it sets none."""
    matched = _OVERRIDE_KEY.match(token)
    return matched[1] if matched else None


def quoted(text: str) -> str:
    """`text` as a quoted string of the override grammar, which unescapes only what stands before a quote."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f'"{escaped}{chr(92) * trailing}"'


def text_value(text: str) -> str:
    """`text` so that the grammar reads it as this string, whatever it looks like.

    Two things a person may mean on purpose stay as they are: `null`, and a value that is quoted already.
    """
    if text == "null" or _QUOTED.fullmatch(text):
        return text
    return text if _PLAIN.fullmatch(text) and not _reads_as_other_type(text) else quoted(text)


def _reads_as_other_type(text: str) -> bool:
    if text.lower() in _NOT_TEXT:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


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
    return [_unquoted(value)] if value and not re.search(r"^[$\[{]|,", value) else None


def _split_list(body: str) -> list[str]:
    items = re.findall(r"""(?:"(?:\\.|[^"])*"|'(?:\\.|[^'])*'|[^,])+""", body)
    return [_unquoted(item.strip()) for item in items if item.strip()]


def _unquoted(text: str) -> str:
    if not _QUOTED.fullmatch(text):
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
