"""The texts of a prompt and of a response that a reward model reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

EMPTY_OUTPUT_PLACEHOLDER = "None"
"""What stands for an answer without words."""

Turn = dict[str, str]


def extract_conversation_history(prompt: Any) -> list[Turn]:
    """The messages of a request's `input`, or of the request, by role and text; parts that are no text are left out."""
    messages = _field(prompt, "input") if _field(prompt, "input") is not None else prompt
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    turns = [] if isinstance(messages, BaseModel | Mapping) else messages or []
    return [{"role": str(_field(turn, "role")), "content": _text(turn)} for turn in turns if _field(turn, "role")]


def extract_from_response_obj(response: Any) -> tuple[str, str]:
    """What was thought and what was answered in a response, an object or its JSON; both may be empty."""
    thoughts, answers = [], []
    for item in _field(response, "output") or ():
        if _field(item, "type") == "reasoning":
            parts = [*(_field(item, "summary") or ()), *(_field(item, "content") or ())]
            thoughts += [_text_of(part) for part in parts]
        elif _field(item, "type") == "message" and _field(item, "role") in (None, "assistant"):
            answers.append(_text(item))
    return "\n".join(filter(None, thoughts)).strip(), (answers[-1] if answers else "").strip()


def extract_output_text(response: Any) -> str:
    """What was answered: the text of the last message, or a word that stands for none."""
    return extract_from_response_obj(response)[1] or EMPTY_OUTPUT_PLACEHOLDER


def get_prompt_key_from_input(messages: Any, principle: str | None = None) -> str:
    """A digest of a request's `input` and of the principle it is judged by."""
    return digest({"input": plain(messages), "principle": principle})


def get_prompt_key(example: Any) -> str:
    """The digest of a row, or of a request to verify it."""
    params = _field(example, "responses_create_params")
    return get_prompt_key_from_input(_field(params, "input"), _field(example, "principle"))


def digest(value: Any) -> str:
    """SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def _text(message: Any) -> str:
    content = _field(message, "content")
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content or ()
    return "\n".join(filter(None, map(_text_of, parts)))


def _text_of(part: Any) -> str:
    text = part if isinstance(part, str) else _field(part, "text")
    return text if isinstance(text, str) else ""


def _field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
