"""What servers write, cut down to what a person who only wants results has to know."""

import io
import re
from typing import TextIO

_WARNING = re.compile(r"\([^)]*\) (?:\S*: )?\S*warning\b", re.IGNORECASE)


class WarningsOnly(io.StringIO):
    """A stream that passes on the lines of servers that begin with a warning, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Takes whole lines, each with its server's name in front."""
        shown = [line for line in text.splitlines(keepends=True) if _WARNING.match(line)]
        if shown:
            self._stream.write("".join(shown))
            self._stream.flush()
        return len(text)
