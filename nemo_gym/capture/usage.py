"""Token counts as providers report them, in one vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")


class TokenStats(TypedDict):
    """Tokens of one call; None where the provider did not say."""

    tokens_in: int | None
    tokens_out: int | None
    tokens_reasoning: int | None
    tokens_total: int | None
    cached_tokens: int | None
    cache_creation_tokens: int | None
    cache_hit: bool | None


def extract_token_stats(usage: Any) -> TokenStats:
    """The counts of a `usage` object of any dialect; those of Anthropic's cache count as input."""
    usage = usage if isinstance(usage, Mapping) else {}
    read, created = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    tokens_in = _first(usage, "input_tokens", "prompt_tokens")
    if tokens_in is not None:
        tokens_in += (read or 0) + (created or 0)
    tokens_out = _first(usage, "output_tokens", "completion_tokens")
    total = _count(usage, "total_tokens")
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    cached = _detail(usage, _INPUT_DETAILS, ("cached_tokens", "cached_input_tokens"))
    if cached is None:
        cached = read if read is not None else _count(usage, "cached_input_tokens")
    reasoning = _detail(usage, _OUTPUT_DETAILS, ("reasoning_tokens",))
    if reasoning is None:
        reasoning = _count(usage, "reasoning_output_tokens")
    return TokenStats(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        tokens_reasoning=reasoning,
        tokens_total=total,
        cached_tokens=cached,
        cache_creation_tokens=created,
        cache_hit=None if cached is None else cached > 0,
    )


def _count(source: Mapping[str, Any], name: str) -> int | None:
    value = source.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _first(source: Mapping[str, Any], *names: str) -> int | None:
    return next((value for name in names if (value := _count(source, name)) is not None), None)


def _detail(usage: Mapping[str, Any], details: Iterable[str], names: tuple[str, ...]) -> int | None:
    for detail in details:
        source = usage.get(detail)
        if isinstance(source, Mapping) and (value := _first(source, *names)) is not None:
            return value
    return None
