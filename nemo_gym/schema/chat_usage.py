"""Token usage of a chat completion as usage of a response."""

from typing import Any

from nemo_gym.schema.chat_completion import CompletionUsage
from nemo_gym.schema.usage import NeMoGymResponseUsage
from nemo_gym.schema.wire import read_key

_CACHED_ALIASES = ("cached_input_tokens", "cache_read_input_tokens")
_REASONING_ALIASES = ("reasoning_output_tokens",)


def usage_detail(usage: Any, detail_group: str, detail_name: str, *top_level_aliases: str) -> int | None:
    """A detail of a usage (dict or model): nested in its group, or under one of its top-level names; else null."""
    nested = read_key(read_key(usage, detail_group), detail_name)
    if nested is not None:
        return int(nested)
    found = next((value for alias in top_level_aliases if (value := read_key(usage, alias)) is not None), None)
    return None if found is None else int(found)


def usage_to_responses(usage: CompletionUsage | None) -> NeMoGymResponseUsage | None:
    """The same counts under Responses names; what the backend adds is kept, what it leaves out is null."""
    if usage is None:
        return None
    aliases = {*_CACHED_ALIASES, *_REASONING_ALIASES}
    extra = {key: value for key, value in (usage.model_extra or {}).items() if key not in aliases}
    cached = usage_detail(usage, "prompt_tokens_details", "cached_tokens", *_CACHED_ALIASES)
    reasoning = usage_detail(usage, "completion_tokens_details", "reasoning_tokens", *_REASONING_ALIASES)
    return NeMoGymResponseUsage.model_validate(
        {
            **extra,
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": usage.total_tokens,
        }
    )
