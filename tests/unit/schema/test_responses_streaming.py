"""The Responses dialect for streaming clients."""

import json
import logging
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

from nemo_gym import responses_streaming as streaming
from tests.unit.schema.examples import FUNCTION_TOOL, output_message, response


def frames(stream: Any) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for frame in stream:
        event, data, *rest = frame.split("\n")
        assert rest == ["", ""]
        found.append((event.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def sanitized(**body: Any) -> dict[str, Any]:
    return streaming.sanitize_streaming_responses_body({"input": "hi", **body})[0]


MEMBER: dict[str, Any] = {"type": "function", "name": "find", "parameters": {}, "strict": None}
NAMESPACE = {"type": "namespace", "name": "web", "description": "d", "tools": [MEMBER, {"type": "custom", "name": "c"}]}


def test_a_response_is_replayed_event_by_event() -> None:
    whole = response(output_message(), {"type": "reasoning", "id": "r", "summary": []}, status="completed")

    found = frames(streaming.synthesize_responses_sse(whole))

    assert [event for event, _ in found] == [
        "response.created",
        "response.output_item.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert all(payload["type"] == event for event, payload in found)
    created = found[0][1]["response"]
    assert (created["status"], created["output"], created["id"]) == ("in_progress", [], "resp_1")
    assert [(payload["output_index"], payload["item"]["type"]) for _, payload in found[1:3]] == [
        (0, "message"),
        (1, "reasoning"),
    ]
    assert found[3][1]["response"] == whole.model_dump(exclude_unset=True)


def test_the_vendors_client_reads_the_events() -> None:
    events: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    whole = response(output_message(), status="completed")

    kinds = [events.validate_python(payload).type for _, payload in frames(streaming.synthesize_responses_sse(whole))]
    failure = [events.validate_python(p).type for _, p in frames(streaming.synthesize_responses_failure_sse("no"))]

    assert kinds == ["response.created", "response.output_item.done", "response.completed"]
    assert failure == ["response.created", "response.failed"]


def test_a_failure_says_why() -> None:
    found = frames(streaming.synthesize_responses_failure_sse("too late", code="rate_limit_exceeded"))

    assert found[-1][0] == "response.failed"
    failed = found[-1][1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "rate_limit_exceeded", "message": "too late"}
    assert found[0][1]["response"]["id"] == failed["id"]


def test_the_frame_writer_is_looked_up_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_sse_event", lambda payload: payload["type"])

    assert list(streaming.synthesize_responses_failure_sse("no")) == ["response.created", "response.failed"]


def test_streaming_and_unknown_keys_are_dropped_and_the_body_is_left_alone() -> None:
    body = {"input": "hi", "stream": True, "stream_options": {}, "client_metadata": {}, "temperature": 1}

    clean, names = streaming.sanitize_streaming_responses_body(body)

    assert clean == {"input": "hi", "temperature": 1}
    assert names == {}
    assert body["stream"] is True


def test_namespaces_become_flat_functions() -> None:
    clean, names = streaming.sanitize_streaming_responses_body({"input": "hi", "tools": [FUNCTION_TOOL, NAMESPACE]})

    assert clean["tools"] == [FUNCTION_TOOL, {**MEMBER, "name": "web__find"}]
    assert names == {"web__find": ("web", "find")}


def test_calls_are_named_as_the_client_knows_them() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "web__find", "arguments": "{}"}
    other = {**call, "name": "look__at"}

    found = frames(streaming.synthesize_responses_sse(response(call, other), {"web__find": ("web", "find")}))

    assert found[1][1]["item"] == {**call, "name": "find", "namespace": "web"}
    assert found[2][1]["item"] == other
    assert found[3][1]["response"]["output"][0]["namespace"] == "web"


def test_calls_in_the_input_take_the_joined_name() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "find", "namespace": "web", "arguments": "{}"}

    (item,) = sanitized(input=[call])["input"]

    assert item == {"type": "function_call", "call_id": "c", "name": "web__find", "arguments": "{}"}


def test_additional_tools_join_the_tools(caplog: pytest.LogCaptureFixture) -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [MEMBER, NAMESPACE, {"type": "web_search"}]}

    with caplog.at_level(logging.WARNING):
        clean = sanitized(input=[more, {"role": "user", "content": "q"}], tools=[FUNCTION_TOOL])

    assert clean["input"] == [{"role": "user", "content": "q"}]
    assert [tool["name"] for tool in clean["tools"]] == ["look", "find", "web__find"]
    assert "not a function" in caplog.text


@pytest.mark.parametrize("tool", [{"type": "odd"}, {"type": "function", "name": "f"}, "tool", {}])
def test_invalid_tools_are_dropped_with_a_warning(tool: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert sanitized(tools=[tool, FUNCTION_TOOL])["tools"] == [FUNCTION_TOOL]

    assert "dropped an invalid tool" in caplog.text


def test_a_tool_with_unknown_keys_loses_only_those() -> None:
    assert sanitized(tools=[{**FUNCTION_TOOL, "bogus": 1}])["tools"] == [FUNCTION_TOOL]


@pytest.mark.parametrize("item", [{"type": "odd"}, {"type": "message", "role": "odd", "content": "x"}, 5])
def test_invalid_items_are_dropped_with_a_warning(item: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert sanitized(input=[item, {"role": "user", "content": "q"}])["input"] == [{"role": "user", "content": "q"}]

    assert "dropped an invalid input item" in caplog.text


def test_messages_that_open_the_input_become_instructions() -> None:
    clean = sanitized(
        instructions="a",
        input=[
            {"role": "developer", "content": "b"},
            {"role": "system", "content": [{"type": "input_text", "text": "c"}]},
            {"role": "user", "content": "q"},
            {"role": "system", "content": "late"},
        ],
    )

    assert clean["instructions"] == "a\n\nb\n\nc"
    assert [item["role"] for item in clean["input"]] == ["user", "system"]


def test_validation_takes_away_what_is_too_much_at_any_depth() -> None:
    body = {
        "input": [{"role": "user", "content": "q"}],
        "bogus": 1,
        "reasoning": {"effort": "low", "bogus": 1},
        "text": {"format": {"type": "text", "bogus": 1}},
        "tools": [{**FUNCTION_TOOL, "bogus": 1}],
    }

    params = streaming.validate_streaming_responses_params(body)

    assert params.model_dump(exclude_unset=True) == {
        "input": [{"role": "user", "content": "q"}],
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}},
        "tools": [FUNCTION_TOOL],
    }
    assert body["bogus"] == 1


def test_validation_reports_what_is_wrong() -> None:
    with pytest.raises(ValidationError, match="temperature"):
        streaming.validate_streaming_responses_params({"input": "hi", "bogus": 1, "temperature": "warm"})


def test_the_delimiter_is_part_of_the_contract() -> None:
    assert streaming.NAMESPACE_TOOL_DELIMITER == "__"
