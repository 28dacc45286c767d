"""Questions about stored documents: a prompt with documents in it, answered by another model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from resources_servers.finance_sec_search.session_documents import shown_keys
from resources_servers.sec_local_index.edgar_search_service import coerce_stringified_collection

CHARS_PER_TOKEN = 4
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")

Ranges = Mapping[str, tuple[int, int]]


class RetrievalError(Exception):
    """What was asked for can't be done; the text is for the model."""


def filled_prompt(prompt: str, texts: dict[str, str], ranges: Any) -> str:
    """The prompt with every `{{key}}` replaced by that document, or by the part that `ranges` says. What looks like a
    placeholder in a document is text.

    Raises RetrievalError for a prompt without placeholders, keys that aren't there, and ranges that are none.
    """
    keys = _PLACEHOLDER.findall(prompt)
    if not keys:
        raise RetrievalError(
            "The prompt names no document: write the key of a stored document in double braces, as in {{my_key}}. "
            f"Keys: {shown_keys(texts)}"
        )
    if unknown := [key for key in keys if key not in texts]:
        shown = ", ".join(key[:100] for key in unknown[:5])
        raise RetrievalError(f"There is no document under the key {shown}. Keys: {shown_keys(texts)}")
    parts = _ranges(ranges)
    if stray := [key for key in parts if key not in keys]:
        raise RetrievalError(f"input_character_ranges has a part of {stray[0][:100]}, which the prompt doesn't name")
    return _PLACEHOLDER.sub(lambda found: _part(texts[found[1]], parts.get(found[1])), prompt)


def fits(prompt: str, *, context_tokens: int, output_tokens: int | None) -> None:
    """RetrievalError for a prompt that is surely longer than the model's context."""
    room = (context_tokens - (output_tokens or 0)) * CHARS_PER_TOKEN
    if len(prompt) > room:
        raise RetrievalError(
            f"The prompt has {len(prompt)} characters with its documents, more than the about {max(0, room)} that the "
            "retrieval model can read: ask about parts of them, with input_character_ranges"
        )


def request_of(
    prompt: str,
    params: NeMoGymResponseCreateParamsNonStreaming | None,
    *,
    system_prompt: str | None,
    output_tokens: int | None,
) -> NeMoGymResponseCreateParamsNonStreaming:
    messages = [NeMoGymEasyInputMessage(role="user", content=prompt)]
    if system_prompt:
        messages.insert(0, NeMoGymEasyInputMessage(role="system", content=system_prompt))
    base = params or NeMoGymResponseCreateParamsNonStreaming(input=[])
    changes: dict[str, Any] = {"input": messages}
    if output_tokens is not None:
        changes["max_output_tokens"] = output_tokens
    return base.model_copy(update=changes)


def answer_in(response: NeMoGymResponse) -> str:
    """What the model answered. RetrievalError, with the reason, when it said nothing."""
    if text := response.output_text.strip():
        return text
    details = response.incomplete_details
    if details is not None and details.reason:
        reason = details.reason
    elif response.error is not None:
        reason = f"{response.error.code}: {response.error.message}"
    else:
        reason = f"status {response.status}"
    raise RetrievalError(f"The retrieval model gave no answer ({reason}). Ask about less at a time.")


def _ranges(given: Any) -> Ranges:
    given = coerce_stringified_collection(given)
    if given is None or given == "":
        return {}
    parts: dict[str, tuple[int, int]] = {}
    for each in given if isinstance(given, list | tuple) else [given]:
        each = coerce_stringified_collection(each)
        try:
            parts[str(each["key"])] = (_place(each["start"]), _place(each["end"]))
        except (TypeError, KeyError, ValueError, OverflowError):
            raise RetrievalError(
                'input_character_ranges must be a list of objects like {"key": "my_key", "start": 0, "end": 50000}'
            ) from None
    return parts


def _place(value: Any) -> int:
    return max(0, int(value))


def _part(text: str, part: tuple[int, int] | None) -> str:
    return text if part is None else text[part[0] : part[1]]
