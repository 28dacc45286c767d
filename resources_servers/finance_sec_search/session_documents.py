"""What a session has read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


class StorageFullError(Exception):
    """The session may keep no more; the text is for the model."""


@dataclass
class SessionDocuments:
    """Texts by key, at most `max_documents` with at most `max_chars` together."""

    max_documents: int
    max_chars: int
    started: float = field(default_factory=time.monotonic)
    texts: dict[str, str] = field(default_factory=dict)

    def store(self, key: str, text: str) -> bool:
        """Keep a text, and say whether there was another under its key. Raises StorageFullError."""
        others = {name: len(held) for name, held in self.texts.items() if name != key}
        if len(others) >= self.max_documents or sum(others.values()) + len(text) > self.max_chars:
            raise StorageFullError(
                f"There is no room for {len(text)} more characters: {len(others)} documents with "
                f"{sum(others.values())} characters are stored, and at most {self.max_documents} with {self.max_chars} "
                f"can be. Use the key of one that is no longer needed. Keys: {shown_keys(self.texts)}"
            )
        was_there = key in self.texts
        self.texts[key] = text
        return was_there

    @property
    def age(self) -> float:
        """Seconds since the session was opened."""
        return time.monotonic() - self.started


def shown_keys(texts: dict[str, str], most: int = 200) -> str:
    """The keys as a model reads them."""
    keys = [key if len(key) <= 100 else key[:100] + "…" for key in texts]
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return ", ".join(keys[:most]) + more if keys else "none"
