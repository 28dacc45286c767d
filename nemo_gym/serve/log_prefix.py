"""Lines of a server's output say whose they are."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from nemo_gym.serve.redaction import beginning, encodable, redact

MOST_CHARS = 1_000_000
"""Of what is written at once."""


class PrefixedStream:
    """A text stream that puts a prefix before each line; a line written in pieces gets one prefix.

    What is written is redacted on the way, what no file takes is escaped, and of what is very long only the beginning
    is written, whoever writes it.
    """

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream = stream
        self._prefix = prefix
        self._at_line_start = True

    def write(self, text: str) -> int:
        if text:
            head = self._prefix if self._at_line_start else ""
            self._at_line_start = text.endswith("\n")
            body = _bounded(text[:-1] if self._at_line_start else text)
            tail = "\n" if self._at_line_start else ""
            self._stream.write(head + body.replace("\n", "\n" + self._prefix) + tail)
        return len(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _bounded(text: str) -> str:
    if len(text) <= MOST_CHARS:
        return encodable(redact(text))
    return f"{encodable(beginning(text, MOST_CHARS))}… ({len(text) - MOST_CHARS} more characters)"


def prefix_output(name: str) -> None:
    """Put `(<name>) ` before every line this process prints from now on; a second call changes nothing."""
    for attribute in ("stdout", "stderr"):
        stream = getattr(sys, attribute)
        if not isinstance(stream, PrefixedStream):
            setattr(sys, attribute, PrefixedStream(stream, f"({name}) "))
