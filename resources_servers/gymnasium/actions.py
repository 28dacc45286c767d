"""Reading what a model wants to do, and answering its tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from nemo_gym.openai_utils import NeMoGymResponse

OnInvalidAction: TypeAlias = Literal["error", "penalty", "noop"]
"""What to do with a reply that holds no action: fail the rollout, make it cost a move, or ask again."""


def extract_text(response: NeMoGymResponse) -> str:
    """The texts of all messages, joined without a separator."""
    return "".join(text for item in response.output if item.type == "message" for text in _texts(item.content))


def tagged_actions(text: str, choices: Iterable[str]) -> list[str]:
    """What stands between `<action>` and `</action>`, of `choices` and in lower case; tags of anything else are
    passed over."""
    return [match.lower() for match in _tags_of(tuple(choices)).findall(text)]


def tool_output(call: Any, result: Any) -> dict[str, str]:
    """The answer to a function call, for `info["tool_outputs"]`; what JSON has no form for is written as text."""
    return {"call_id": call.call_id, "output": json.dumps(result, default=str)}


@lru_cache(maxsize=256)
def _tags_of(choices: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(re.escape(choice) for choice in sorted(choices, key=len, reverse=True))
    return re.compile(rf"<action>\s*+({names})\s*+</action>", re.IGNORECASE | re.ASCII)


def _texts(content: Any) -> Iterator[str]:
    for part in [{"type": "output_text", "text": content}] if isinstance(content, str) else content:
        fields = part if isinstance(part, Mapping) else vars(part)
        if fields.get("type") == "output_text":
            yield fields["text"]
