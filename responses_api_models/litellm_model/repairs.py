"""What LiteLLM's Responses answers get wrong, put right before they are checked."""

from __future__ import annotations

from typing import Any

from nemo_gym.responses_converter import _usage_detail

Body = dict[str, Any]


def is_chat_completion(answer: Body) -> bool:
    """Whether `/responses` was answered in the other dialect."""
    return answer.get("object") == "chat.completion"


def repaired(answer: Body) -> Body:
    """The answer with its known mistakes put right; a copy."""
    answer = dict(answer)
    if isinstance(answer.get("reasoning"), dict) and answer["reasoning"].get("effort") == "none":
        answer["reasoning"] = {**answer["reasoning"], "effort": None}
    if isinstance(answer.get("usage"), dict):
        answer["usage"] = _with_usage_details(answer["usage"])
    answer["output"] = [_repaired_item(item) for item in answer.get("output") or ()]
    return answer


def _with_usage_details(usage: Body) -> Body:
    """Usage under Responses names, with the details that are unknown as nulls."""
    given = int(usage.get("input_tokens") or usage.get("prompt_tokens") or 0)
    made = int(usage.get("output_tokens") or usage.get("completion_tokens") or 0)
    cached = _usage_detail(usage, "input_tokens_details", "cached_tokens", "cached_input_tokens")
    if cached is None:
        cached = _usage_detail(usage, "prompt_tokens_details", "cached_tokens", "cache_read_input_tokens")
    reasoning = _usage_detail(usage, "output_tokens_details", "reasoning_tokens", "reasoning_output_tokens")
    if reasoning is None:
        reasoning = _usage_detail(usage, "completion_tokens_details", "reasoning_tokens")
    return {
        **usage,
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": usage.get("total_tokens") or given + made,
        "input_tokens_details": {**(usage.get("input_tokens_details") or {}), "cached_tokens": cached},
        "output_tokens_details": {**(usage.get("output_tokens_details") or {}), "reasoning_tokens": reasoning},
    }


def _repaired_item(item: Any) -> Any:
    """A reasoning item with its text where reasoning is looked for, the summary, instead of as output text."""
    if not isinstance(item, dict) or item.get("type") != "reasoning":
        return item
    content = [part for part in item.get("content") or () if isinstance(part, dict)]
    summary = [{**part, "type": "summary_text"} for part in item.get("summary") or () if isinstance(part, dict)]
    misplaced = [part for part in content if part.get("type") == "output_text"]
    rest = [part for part in content if part.get("type") != "output_text"]
    if not summary:
        summary = [{"type": "summary_text", "text": part.get("text") or ""} for part in misplaced]
    return {**item, "summary": summary, "content": rest or None}
