"""Reasoning: a field of its own at the engine, think tags in the text everywhere else."""

from __future__ import annotations

from typing import Any

from nemo_gym.responses_converter import ResponsesConverter
from responses_api_models.vllm_model.errors import ReasoningParserMismatch, SeveralThinkBlocks
from responses_api_models.vllm_model.settings import ReasoningField

Message = dict[str, Any]

_FIELD_NAMES: dict[ReasoningField, tuple[str, ...]] = {
    "both": ("reasoning_content", "reasoning"),
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
}


def separate_reasoning(message: Message, field: ReasoningField, *, resend: bool) -> None:
    """Moves an assistant message's think block out of its content: into the engine's field(s), or away."""
    content = message.get("content")
    if isinstance(content, str):
        found, message["content"] = ResponsesConverter._parse_think_tags(content)
    elif isinstance(content, list):
        found, message["content"] = _separate_parts(content)
    else:
        found = []
    reasoning = found[0] if found else message.get("reasoning_content") or message.get("reasoning")
    if reasoning and resend:
        for name in ("reasoning_content", "reasoning"):
            message.pop(name, None)
        message.update(dict.fromkeys(_FIELD_NAMES[field], reasoning))


def _separate_parts(parts: list[Any]) -> tuple[list[str], list[Any]]:
    found: list[str] = []
    kept = []
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            spans, text = ResponsesConverter._parse_think_tags(part["text"])
            found += spans
            part = {**part, "text": text}
        kept.append(part)
    if len(found) > 1:
        raise SeveralThinkBlocks("an assistant message with a list of parts may hold one <think> block, not several")
    return found, kept


def take_reasoning(message: Message) -> str | None:
    """Removes the reasoning fields of an engine's answer; None when they are absent or empty."""
    values = [message.pop(name, None) for name in ("reasoning_content", "reasoning")]
    return next((value for value in values if value), None)


def with_reasoning_in_content(message: Message, *, uses_parser: bool, continues: bool) -> None:
    """Puts the reasoning an engine returned apart where the converter reads it: as think tags before the text.

    An engine that was told to continue a message reports plain text as reasoning. Raises ReasoningParserMismatch when
    the config says that reasoning isn't parsed.
    """
    reasoning = take_reasoning(message)
    if reasoning is None:
        return
    if not uses_parser:
        raise ReasoningParserMismatch(
            "The engine returned reasoning in a field of its own, but uses_reasoning_parser is false: set it to true "
            "in the model server's config, or start the engine without a reasoning parser."
        )
    prefix = reasoning if continues else ResponsesConverter._wrap_reasoning_in_think_tags([reasoning])
    message["content"] = prefix + (message.get("content") or "")
