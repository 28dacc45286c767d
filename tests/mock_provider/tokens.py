"""A tokenizer that is not one: every word is a token whose id follows from its letters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from zlib import crc32

VOCABULARY = 50_000
_WORD = re.compile(r"\s*\S+")


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def token_id(word: str) -> int:
    return crc32(word.encode()) % VOCABULARY


def tokenize(text: str) -> list[int]:
    return [token_id(word) for word in words(text)]


def logprob(token: int) -> float:
    return -(token % 16 + 1) / 16


def prompt_text(messages: Iterable[dict[str, Any]]) -> str:
    """The prompt a chat template would make of the messages (tool calls and reasoning included)."""
    parts = []
    for message in messages:
        calls = "".join(
            f" call {c['function']['name']} {c['function']['arguments']}" for c in message.get("tool_calls") or []
        )
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        parts.append(f"<{message.get('role')}> {reasoning} {text_of(message.get('content'))}{calls}")
    return "\n".join(parts)


def text_of(content: Any) -> str:
    """The text of a message's content, whether a string or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return " ".join(
        part.get("text", "") for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
