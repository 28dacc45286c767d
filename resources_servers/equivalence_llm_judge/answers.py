"""Taking the question and the answer out of texts by a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.verifiers.patterns import PatternError, last_match
from nemo_gym.verifiers.response_text import last_user_text


async def reduced(text: str, pattern: str | None) -> str:
    """What the last match of `pattern` holds: its first group that isn't blank, else all of it, stripped.

    The whole text without a pattern, with one that matches nowhere, and with one that is none. Raises
    PatternTimeoutError.
    """
    if not pattern:
        return text
    try:
        found = await last_match(pattern, text)
    except PatternError:
        return text
    return text if found is None else _first_group(found)


def question_of(params: NeMoGymResponseCreateParamsNonStreaming) -> str:
    """The last user message of a prompt, stripped."""
    return last_user_text(params.input).strip()


def question_by_trusted_pattern(params: NeMoGymResponseCreateParamsNonStreaming, pattern: str | None) -> str:
    """The question as `reduced` takes it from the prompt, with the pattern matched in this process."""
    text = question_of(params)
    try:
        matches = list(re.finditer(pattern, text, re.MULTILINE | re.DOTALL)) if pattern else []
    except re.error:
        return text
    return _first_group([matches[-1].group(0), *matches[-1].groups()]) if matches else text


def _first_group(found: Sequence[str | None]) -> str:
    """Of a match and its groups."""
    return next((group for group in found[1:] if group and group.strip()), found[0] or "").strip()
