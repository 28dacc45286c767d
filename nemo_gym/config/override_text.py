"""Texts as the override grammar has to be told them."""

import re

_PLAIN = re.compile(r"[A-Za-z0-9_/.%*@?|:+-]+")
QUOTED = re.compile(r"""(['"])(?:\\.|(?!\1).)*\1""", re.DOTALL)
_NOT_TEXT = frozenset({"true", "false", "null", "inf", "+inf", "-inf", "nan", "+nan", "-nan"})


def quoted(text: str) -> str:
    """`text` as a quoted string of the override grammar, which unescapes only what stands before a quote."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f'"{escaped}{chr(92) * trailing}"'


def text_value(text: str) -> str:
    """`text` so that the grammar reads it as this string, whatever it looks like.

    Two things a person may mean on purpose stay as they are: `null`, and a value that is quoted already.
    """
    if text == "null" or QUOTED.fullmatch(text):
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
