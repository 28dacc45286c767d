"""Telling from an error's text that a conversation is longer than its model can read."""

from __future__ import annotations

import re

_PHRASES = (
    r"maximum context (?:length|window)",
    r"exceed\w*.{0,60}context (?:length|window|size|limit)",
    r"context (?:length|window|size|limit).{0,60}exceed",
    r"(?:prompt|input|request|conversation|messages?|inputs?) (?:is|are|was) too (?:long|large)",
    r"(?:prompt|input) (?:token )?(?:length|count).{0,60}(?:exceed|larger than|longer than|greater than)",
    r"exceed\w*.{0,60}(?:maximum|max|allowed|permitted|limit)\w*.{0,40}tokens?",
    r"tokens?.{0,60}exceed\w*.{0,60}(?:limit|maximum|max|capacity)",
    r"(?:input|prompt).{0,40}(?:length|tokens?) should be",
    r"too many (?:input |prompt )?tokens",
    r"(?:request|payload|body|entity)\b.{0,20} too large",
    r"reduce the length of the (?:messages|prompt|input|conversation)",
    r"(?:prompt|input|conversation) (?:does|do|will|can)(?:n't| not|not) fit",
    r"longer than the (?:model's )?(?:maximum|context|model)",
    r"(?:larger|greater|longer) than (?:the )?(?:max_total_tokens|max_seq_len|max_position_embeddings|n_ctx)",
    r"string (?:is )?too long",
    r"context_length_exceeded|model_context_window_exceeded|string_above_max_length|request_too_large",
)
_OVERFLOW = re.compile("|".join(_PHRASES), re.IGNORECASE)
_MOST_CHARS = 20_000


def is_context_overflow(text: str) -> bool:
    """Whether an error says, in the words of any of the usual providers and engines, that the context is too long."""
    return _OVERFLOW.search(text[:_MOST_CHARS]) is not None


def error_text(error: BaseException) -> str:
    """What an error says, the start of the reply that came with it included."""
    content = getattr(error, "response_content", None)
    body = content[:_MOST_CHARS].decode("utf-8", errors="replace") if isinstance(content, bytes) else ""
    return f"{body}\n{error}"
