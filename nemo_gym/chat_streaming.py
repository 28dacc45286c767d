"""Chat Completions for streaming clients: a whole answer, replayed as chunks."""

from collections.abc import Iterator
from typing import Any

import orjson

from nemo_gym.schema.streamed_answers import chat_chunks
from nemo_gym.schema.streamed_request import sanitize_streaming_chat_body


def _sse_data(payload: dict[str, Any]) -> str:
    return f"data: {orjson.dumps(payload).decode()}\n\n"


def synthesize_chat_completion_sse(completion: Any, include_usage: bool = False) -> Iterator[str]:
    """The frames of a whole completion, a model or a dict, up to `[DONE]`. Token ids are not among them."""
    for payload in chat_chunks(completion, include_usage):
        yield _sse_data(payload)
    yield "data: [DONE]\n\n"


__all__ = ["_sse_data", "sanitize_streaming_chat_body", "synthesize_chat_completion_sse"]
