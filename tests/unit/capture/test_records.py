from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.base_responses_api_model import (
    ModelCallRecord,
    aggregate_model_call_records,
    build_model_call_record,
    extract_token_stats,
)


def stats(usage: Any) -> tuple[Any, ...]:
    found = extract_token_stats(usage)
    names = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens")
    return tuple(found[name] for name in names)  # type: ignore[literal-required]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, (None, None, None, None, None)),
        ({"input_tokens": 3, "output_tokens": 2}, (3, 2, None, 5, None)),
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 9}, (3, 2, None, 9, None)),
        (
            {
                "input_tokens": 3,
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 1},
                "input_tokens_details": {"cached_tokens": 0},
            },
            (3, 2, 1, 5, 0),
        ),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens_details": {"reasoning_tokens": 7},
                "prompt_tokens_details": {"cached_input_tokens": 2},
            },
            (3, None, 7, None, 2),
        ),
        (
            {
                "input_tokens": 3,
                "output_tokens": 2,
                "cache_read_input_tokens": 10,
                "cache_creation_input_tokens": 100,
            },
            (113, 2, None, 115, 10),
        ),
        ({"reasoning_output_tokens": 4, "cached_input_tokens": 5}, (None, None, 4, None, 5)),
        ({"input_tokens": True, "output_tokens": -1, "total_tokens": 1.5}, (None, None, None, None, None)),
    ],
)
def test_tokens_are_read_from_every_vocabulary(usage: Any, expected: tuple[Any, ...]) -> None:
    assert stats(usage) == expected


def test_a_cache_hit_is_known_only_where_cached_tokens_are() -> None:
    assert extract_token_stats({})["cache_hit"] is None
    assert extract_token_stats({"cache_read_input_tokens": 0})["cache_hit"] is False
    found = extract_token_stats({"cache_read_input_tokens": 2, "cache_creation_input_tokens": 3})
    assert found["cache_hit"] is True and found["cache_creation_tokens"] == 3


RESPONSES = {
    "id": "r",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "model": "m",
    "usage": {"input_tokens": 1, "output_tokens": 2},
    "output": [
        {"type": "reasoning", "summary": [{"text": "why"}], "content": [{"text": "how"}]},
        {"type": "message", "content": []},
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
    ],
}
CHAT = {
    "id": "r",
    "usage": {"prompt_tokens": 1},
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "content": "x",
                "reasoning_content": "why",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        }
    ],
}
MESSAGES = {
    "id": "r",
    "model": "m",
    "stop_reason": "tool_use",
    "content": [{"type": "thinking", "thinking": "why"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}],
}


@pytest.mark.parametrize(
    ("response", "arguments", "reasoning", "finish", "status"),
    [
        (RESPONSES, "{}", "why\nhow", "max_output_tokens", "incomplete"),
        (CHAT, "{}", "why", "tool_calls", None),
        (MESSAGES, {}, "why", "tool_use", None),
    ],
)
def test_answers_of_every_dialect_are_understood(
    response: dict[str, Any], arguments: Any, reasoning: str, finish: str, status: str | None
) -> None:
    exchange = {"model_call_id": "a", "request": {"model": "asked"}, "response": response, "latency_ms": 4.5}
    record = build_model_call_record(exchange, 3)
    assert record.tool_calls == [{"id": "c", "name": "f", "arguments": arguments}]
    assert (record.reasoning_content, record.finish_reason, record.response_status) == (reasoning, finish, status)
    assert (record.call_index, record.response_id, record.latency_total_ms) == (3, "r", 4.5)
    assert record.model == response.get("model", "asked")


def test_a_call_without_an_answer_is_a_record_too() -> None:
    exchange = {"model_call_id": "a", "request": None, "response": None, "error_category": "timeout", "extra": 1}
    record = build_model_call_record(exchange, 0)
    assert record.error_category == "timeout" and record.tool_calls == [] and record.model is None
    odd: dict[str, Any] = {"response": {"output": ["x"], "choices": "y", "id": 5}}
    assert build_model_call_record(odd, 0).response_id is None


def test_sums_leave_out_what_nobody_reported() -> None:
    calls = [
        ModelCallRecord(call_index=0, tokens_in=1, tokens_out=2, latency_total_ms=1.5),
        ModelCallRecord(call_index=1, tokens_in=10, latency_total_ms=2.0),
    ]
    assert aggregate_model_call_records(calls) == {
        "tokens_in": 11,
        "tokens_out": 2,
        "tokens_reasoning": None,
        "tokens_total": None,
        "cached_tokens": None,
        "latency_total_ms": 3.5,
        "num_calls": 2,
    }
    assert aggregate_model_call_records([])["num_calls"] == 0
