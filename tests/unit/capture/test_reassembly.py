from __future__ import annotations

from typing import Any

import orjson
import pytest

from nemo_gym.anthropic_converter import AnthropicConverter
from nemo_gym.base_responses_api_model import _reconstruct_streamed_response
from nemo_gym.chat_streaming import synthesize_chat_completion_sse
from nemo_gym.openai_utils import NeMoGymChatCompletion


def frames(*events: tuple[str | None, Any], end: str = "\n") -> bytes:
    lines = []
    for name, data in events:
        head = f"event: {name}{end}" if name else ""
        lines.append(f"{head}data: {data if isinstance(data, str) else orjson.dumps(data).decode()}{end}{end}")
    return "".join(lines).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
def test_a_responses_stream_is_the_object_of_its_last_event(kind: str, end: str) -> None:
    stream = frames(
        ("response.created", {"response": {"id": "r", "status": "in_progress"}}),
        (f"response.{kind}", {"type": f"response.{kind}", "response": {"id": "r", "status": kind}}),
        end=end,
    )
    assert _reconstruct_streamed_response(stream, "responses") == {"id": "r", "status": kind}
    assert _reconstruct_streamed_response(frames(("error", {"message": "no"})), "responses") is None


def test_a_chat_stream_is_joined_from_its_deltas() -> None:
    def chunk(index: int = 0, finish: str | None = None, **delta: Any) -> tuple[None, Any]:
        choice = {"index": index, "delta": delta, "finish_reason": finish}
        return None, {"id": "c", "created": 5, "model": "m", "choices": [choice], "usage": None}

    def tool(**delta: Any) -> tuple[None, Any]:
        return chunk(tool_calls=[delta])

    stream = b": keep-alive\n\n" + frames(
        chunk(role="assistant"),
        chunk(reasoning_content="thin"),
        chunk(reasoning_content="k"),
        chunk(content="he"),
        chunk(content="llo"),
        tool(index=1, id="t1", type="function", function={"name": "g", "arguments": ""}),
        tool(index=0, id="t0", type="function", function={"name": "f", "arguments": '{"a'}),
        tool(index=0, function={"arguments": '":1}'}),
        chunk(finish="tool_calls"),
        chunk(index=1, refusal="no", finish="stop"),
        (None, {"choices": [], "usage": {"prompt_tokens": 3}}),
        (None, "[DONE]"),
    )
    assert _reconstruct_streamed_response(stream, "chat") == {
        "id": "c",
        "created": 5,
        "model": "m",
        "object": "chat.completion",
        "usage": {"prompt_tokens": 3},
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "hello",
                    "reasoning_content": "think",
                    "tool_calls": [
                        {"id": "t0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                        {"id": "t1", "type": "function", "function": {"name": "g", "arguments": ""}},
                    ],
                },
            },
            {"index": 1, "finish_reason": "stop", "message": {"role": "assistant", "content": None, "refusal": "no"}},
        ],
    }


def test_our_own_chat_stream_comes_back_whole() -> None:
    message = {
        "role": "assistant",
        "content": "hello",
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    stream = "".join(synthesize_chat_completion_sse(NeMoGymChatCompletion.model_validate(completion)))
    rebuilt: Any = _reconstruct_streamed_response(stream.encode(), "chat")
    assert rebuilt["choices"][0]["message"] == message and rebuilt["id"] == "c"


def test_a_messages_stream_is_put_together_block_by_block() -> None:
    message: dict[str, Any] = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, "b"]}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 4, "output_tokens": 2},
    }
    stream = "".join(AnthropicConverter().anthropic_response_to_sse(message)).encode()
    rebuilt: Any = _reconstruct_streamed_response(stream, "messages")
    assert rebuilt["content"] == message["content"]
    assert rebuilt["stop_reason"] == "tool_use" and rebuilt["usage"]["output_tokens"] == 2
    assert rebuilt["usage"]["input_tokens"] == 4


def test_a_messages_stream_that_was_cut_keeps_what_came() -> None:
    stream = frames(
        (
            "message_start",
            {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
        ),
        (
            None,
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "input": {}}},
        ),
        (
            None,
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a'}},
        ),
    )
    assert _reconstruct_streamed_response(stream + b'data: {"type": "mess', "messages") == {
        "id": "m",
        "usage": {"input_tokens": 1},
        "content": [{"type": "tool_use", "id": "t", "input": {}, "partial_json": '{"a'}],
    }


@pytest.mark.parametrize("dialect", ["responses", "chat", "messages", "other"])
@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe", b"data: nonsense\n\n", b"event: response.completed\n\n", b'data: {"choices": 1}\n\n']
)
def test_what_is_no_stream_gives_nothing(raw: bytes, dialect: str) -> None:
    assert _reconstruct_streamed_response(raw, dialect) is None
