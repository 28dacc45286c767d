"""The Responses API for streaming clients: a whole answer, replayed as server-sent events."""

from collections.abc import Iterator
from typing import Any

import orjson

from nemo_gym.schema.namespaces import (
    NAMESPACE_TOOL_DELIMITER,
    NamespaceMap,
    flatten_namespace_tools,
    restore_namespace_tool_calls,
)
from nemo_gym.schema.streamed_answers import responses_events, responses_failure_events
from nemo_gym.schema.streamed_request import sanitize_streaming_responses_body, validate_streaming_responses_params


def _sse_event(payload: dict[str, Any]) -> str:
    return f"event: {payload['type']}\ndata: {orjson.dumps(payload).decode()}\n\n"


def synthesize_responses_sse(response: Any, ns_map: NamespaceMap | None = None) -> Iterator[str]:
    """The frames of a whole response, a model or a dict; `ns_map` splits flattened tool names again."""
    for payload in responses_events(response, ns_map):
        yield _sse_event(payload)


def synthesize_responses_failure_sse(message: str, *, code: str = "server_error") -> Iterator[str]:
    """The frames of a response that failed."""
    for payload in responses_failure_events(message, code):
        yield _sse_event(payload)


__all__ = [
    "NAMESPACE_TOOL_DELIMITER",
    "NamespaceMap",
    "_sse_event",
    "flatten_namespace_tools",
    "restore_namespace_tool_calls",
    "sanitize_streaming_responses_body",
    "synthesize_responses_failure_sse",
    "synthesize_responses_sse",
    "validate_streaming_responses_params",
]
