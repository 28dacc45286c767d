"""Server-sent events of the three dialects: which one is the last, and what each carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import orjson

from nemo_gym.capture.dialects import Dialect

Ending = Literal["completed", "incomplete", "failed"]

_ENDINGS: dict[Dialect, dict[bytes, Ending]] = {
    "responses": {
        b"response.completed": "completed",
        b"response.incomplete": "incomplete",
        b"response.failed": "failed",
        b"error": "failed",
    },
    "chat": {b"error": "failed"},
    "messages": {b"message_stop": "completed", b"error": "failed"},
}


class EndingScanner:
    """Watches a stream go by, in chunks of any size, for the line that starts its last event."""

    def __init__(self, dialect: Dialect) -> None:
        self._events = _ENDINGS[dialect]
        self._reads_data = dialect == "chat"
        self._tail: list[bytes] = []
        self.ending: Ending | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk; sets `ending` once a line says how the stream ends."""
        if b"\n" not in chunk:
            self._tail.append(chunk)
            return
        *lines, tail = b"".join([*self._tail, chunk]).split(b"\n")
        self._tail = [tail]
        for line in lines:
            self._read(line)

    def finish(self) -> None:
        """Take the last line, which may lack its end."""
        self._read(b"".join(self._tail))
        self._tail = []

    def _read(self, line: bytes) -> None:
        name, _, value = line.rstrip(b"\r").partition(b":")
        found: Ending | None = None
        if name == b"event":
            found = self._events.get(value.strip())
        elif name == b"data" and self._reads_data:
            found = _chat_ending(value.strip())
        if found is not None and self.ending != "failed":
            self.ending = found


def _chat_ending(data: bytes) -> Ending | None:
    if data == b"[DONE]":
        return "completed"
    if b'"error"' not in data:
        return None
    chunk = _json_object(data)
    return "failed" if chunk is not None and chunk.get("error") is not None else None


def is_only_comments(chunk: bytes) -> bool:
    """Whether a chunk of a stream carries nothing but keep-alive comments."""
    return all(not line.strip() or line.startswith(b":") for line in chunk.split(b"\n"))


def events_in(raw: bytes) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """`(event name, data)` of every event whose data is a JSON object."""
    name: str | None = None
    data: list[bytes] = []
    for line in [*raw.splitlines(), b""]:
        if line:
            field, _, value = line.partition(b":")
            if field == b"event":
                name = value.strip().decode("utf-8", "replace")
            elif field == b"data":
                data.append(value.removeprefix(b" "))
            continue
        content = _json_object(b"\n".join(data)) if data else None
        if content is not None:
            yield name, content
        name, data = None, []


def _json_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
