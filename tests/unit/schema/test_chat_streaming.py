"""The chat dialect for streaming clients."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from nemo_gym import chat_streaming as streaming
from tests.unit.schema.examples import TOKENS, completion, tool_call

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def chunks(message: dict[str, Any], include_usage: bool = False, **fields: Any) -> list[dict[str, Any]]:
    whole = completion({"role": "assistant", **message}, **fields)
    *frames, done = streaming.synthesize_chat_completion_sse(whole, include_usage)
    assert done == "data: [DONE]\n\n"
    assert all(frame.startswith("data: ") and frame.endswith("\n\n") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_a_completion_is_replayed_chunk_by_chunk() -> None:
    message = {
        "content": "x",
        "reasoning_content": "r",
        "refusal": "no",
        "tool_calls": [tool_call("c1"), tool_call("c2")],
        **TOKENS,
    }

    found = chunks(message, finish_reason="tool_calls", system_fingerprint="fp")

    assert [chunk["choices"][0]["delta"] for chunk in found] == [
        {"role": "assistant"},
        {"reasoning_content": "r"},
        {"content": "x"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, **tool_call("c1")}, {"index": 1, **tool_call("c2")}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None] * 5 + ["tool_calls"]
    shared = {(c["id"], c["object"], c["created"], c["model"], c["system_fingerprint"]) for c in found}
    assert shared == {("chat-1", "chat.completion.chunk", 7, "backend", "fp")}
    assert "prompt_token_ids" not in json.dumps(found)


def test_reasoning_under_its_other_name() -> None:
    assert chunks({"reasoning": "r"})[1]["choices"][0]["delta"] == {"reasoning_content": "r"}


def test_usage_comes_last_if_wanted() -> None:
    assert "usage" not in chunks({"content": "x"}, usage=USAGE)[-1]

    last = chunks({"content": "x"}, include_usage=True, usage=USAGE)[-1]

    assert (last["choices"], last["usage"]) == ([], USAGE)


def test_the_vendors_client_reads_the_chunks() -> None:
    found = [
        ChatCompletionChunk.model_validate(chunk) for chunk in chunks({"content": "x", "tool_calls": [tool_call()]})
    ]

    assert "".join(chunk.choices[0].delta.content or "" for chunk in found) == "x"
    assert found[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, False), ({"stream_options": {"include_usage": True}}, True), ({"stream_options": None}, False)],
)
def test_a_request_loses_streaming_and_what_the_strict_model_refuses(options: dict[str, Any], expected: bool) -> None:
    body = {"messages": [], "temperature": 1, "stream": True, "bogus": 1, "thinking": {}, "chat_template_kwargs": {}}

    assert streaming.sanitize_streaming_chat_body({**body, **options}) == ({"messages": [], "temperature": 1}, expected)


def test_the_frame_writer_is_looked_up_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_sse_data", lambda payload: "frame")

    assert list(streaming.synthesize_chat_completion_sse(completion())) == ["frame", "frame", "data: [DONE]\n\n"]
