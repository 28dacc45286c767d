"""A captured model call as records carry it: its identity, how it ended, its tokens, and what it said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from nemo_gym.capture.answers import Answer
from nemo_gym.capture.usage import extract_token_stats
from nemo_gym.schema.server_refs import ModelServerRef

PAYLOAD_FIELDS = frozenset({"request", "response", "request_raw", "response_raw"})

_SUMMED = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")


class ModelCallRecord(BaseModel):
    """One model call of a rollout; `call_index` is its line in the capture. Tokens nobody reported are None."""

    model_call_id: str | None = None
    response_id: str | None = None
    client_session_id: str | None = None
    call_index: int
    model_ref: ModelServerRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: Literal["upstream", "local"] | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    request_raw: str | None = None
    response_raw: str | None = None
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None
    error_category: str | None = None
    latency_total_ms: float | None = None
    latency_ttft_ms: float | None = None


_COPIED = (
    "model_call_id",
    "client_session_id",
    "model_ref",
    "dialect",
    "status_code",
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
    "started_at",
    "completed_at",
    "request",
    "response",
    "request_raw",
    "response_raw",
    "error_category",
    "latency_ttft_ms",
)


def build_model_call_record(exchange: Mapping[str, Any], call_index: int) -> ModelCallRecord:
    """The record of an exchange. Raises ValueError (pydantic's) when the exchange isn't one of ours."""
    request, response = exchange.get("request"), exchange.get("response")
    request = request if isinstance(request, Mapping) else {}
    response = response if isinstance(response, Mapping) else {}
    answer = Answer.of(response)
    return ModelCallRecord(
        **{name: exchange.get(name) for name in _COPIED},
        **extract_token_stats(response.get("usage")),
        call_index=call_index,
        latency_total_ms=exchange.get("latency_ms"),
        response_id=_text(response.get("id")),
        model=_text(response.get("model")) or _text(request.get("model")),
        response_status=_text(response.get("status")),
        finish_reason=answer.finish_reason,
        tool_calls=answer.tool_calls,
        reasoning_content=answer.reasoning_content,
    )


def records_of(exchanges: Iterable[tuple[int, Mapping[str, Any]]]) -> tuple[list[ModelCallRecord], int]:
    """`(records, number of exchanges that are none)`."""
    records, damaged = [], 0
    for index, exchange in exchanges:
        try:
            records.append(build_model_call_record(exchange, index))
        except ValidationError:
            damaged += 1
    return records, damaged


def aggregate_model_call_records(records: Iterable[ModelCallRecord]) -> dict[str, Any]:
    """Sums over calls, None for what no call reports, and `num_calls`."""
    known = list(records)
    metrics: dict[str, Any] = {}
    for name in _SUMMED:
        values = [value for record in known if (value := getattr(record, name)) is not None]
        metrics[name] = sum(values) if values else None
    return {**metrics, "num_calls": len(known)}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
