"""The official OpenAI and Anthropic clients, each in front of a Gym model server on a loopback socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import anthropic
import httpx
import openai
import pytest

from nemo_gym.serve import replay
from responses_api_models.openai_model.app import SimpleModelServer, SimpleModelServerConfig
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
from tests.mock_provider import Fault, MockProvider, Reply, Script, ToolCall
from tests.unit.serve.toys import mock_client, serving

QUESTION: Any = {"role": "user", "content": "What is up?"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
RESPONSES_TOOL: Any = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": True}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}}
MESSAGES_TOOL: Any = {"name": "look", "input_schema": SCHEMA}
LOOK = ToolCall("look", {"a": 1}, id="c1")
_SEAT: dict[str, Any] = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}


def openai_model(mock: MockProvider) -> SimpleModelServer:
    fields = {"openai_base_url": mock.base_url, "openai_api_key": "key", "openai_model": "forced"}
    config = SimpleModelServerConfig.model_validate({**_SEAT, **fields, "max_http_attempts": 1})
    return SimpleModelServer(config=config, server_client=mock_client({}))


def vllm_model(mock: MockProvider, **extra: Any) -> VLLMModel:
    fields = {"base_url": mock.base_url, "api_key": "key", "model": "forced"}
    switches = {"return_token_id_information": False, "uses_reasoning_parser": True}
    config = VLLMModelConfig.model_validate({**_SEAT, **fields, **switches, **extra})
    return VLLMModel(config=config, server_client=mock_client({}))


Serve = Callable[[Any], Any]
MAKERS = [openai_model, vllm_model]


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.")) as provider:
        yield provider


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Puts a model server on a socket and answers its address."""
    async with AsyncExitStack() as stack:

        async def start(server: Any) -> str:
            app = server.setup_webserver()
            server.setup_exception_middleware(app)
            server.setup_cancellation_middleware(app)
            return f"http://127.0.0.1:{await stack.enter_async_context(serving(app))}"

        yield start


@pytest.fixture(params=MAKERS, ids=["openai_model", "vllm_model"])
async def address(request: pytest.FixtureRequest, mock: MockProvider, serve: Serve) -> str:
    found: str = await serve(request.param(mock))
    return found


@pytest.fixture
async def client(address: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="k", max_retries=0) as found:
        yield found


@pytest.fixture
async def claude(address: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=address, api_key="k", max_retries=0) as found:
        yield found


# --- the Responses API ------------------------------------------------------------------------------------------------


async def test_responses(client: openai.AsyncOpenAI) -> None:
    answer = await client.responses.create(model="m", input=[QUESTION], temperature=0.5, max_output_tokens=9)
    assert answer.output_text == "Not much." and answer.status == "completed"
    assert answer.usage and answer.usage.output_tokens == 2


async def test_a_responses_stream_event_by_event(client: openai.AsyncOpenAI) -> None:
    events = [event async for event in await client.responses.create(model="m", input="hi", stream=True)]
    kinds = [event.type for event in events]
    assert kinds == ["response.created", "response.output_item.done", "response.completed"]
    assert [event.sequence_number for event in events] == [0, 1, 2]
    first, last = events[0], events[-1]
    assert first.type == "response.created" and first.response.output == []
    assert last.type == "response.completed" and last.response.output_text == "Not much."


async def test_the_responses_stream_helper(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model="m", input="hi") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "Not much."


@pytest.mark.parametrize("streams", [False, True])
async def test_a_responses_tool_dialogue_with_reasoning(
    client: openai.AsyncOpenAI, mock: MockProvider, streams: bool
) -> None:
    async def ask(items: list[Any]) -> list[Any]:
        if not streams:
            whole = await client.responses.create(model="m", input=items, tools=[RESPONSES_TOOL])
            return list(whole.output)
        stream = await client.responses.create(model="m", input=items, tools=[RESPONSES_TOOL], stream=True)
        return [event.item async for event in stream if event.type == "response.output_item.done"]

    mock.play(Reply(text=None, reasoning="Look first.", tool_calls=(LOOK,)))
    reasoning, call = await ask([QUESTION])
    assert reasoning.type == "reasoning" and reasoning.summary[0].text == "Look first."
    assert (call.type, call.name, call.call_id, json.loads(call.arguments)) == ("function_call", "look", "c1", {"a": 1})

    mock.play("Done.")
    result = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
    (message,) = await ask([QUESTION, reasoning, call, result])
    assert message.content[0].text == "Done."
    assert "seen" in json.dumps(mock.last_body) and "Look first." in json.dumps(mock.last_body)


async def test_structured_output_is_parsed(serve: Serve, mock: MockProvider) -> None:
    from pydantic import BaseModel

    class City(BaseModel):
        name: str

    mock.play('{"name": "Oslo"}')
    async with openai.AsyncOpenAI(base_url=f"{await serve(vllm_model(mock))}/v1", api_key="k") as client:
        answer = await client.responses.parse(model="m", input="Where?", text_format=City)
        assert answer.output_parsed == City(name="Oslo")
        completion = await client.chat.completions.parse(model="m", messages=[QUESTION], response_format=City)
        assert completion.choices[0].message.parsed == City(name="Oslo")


async def test_a_cut_off_response(client: openai.AsyncOpenAI, mock: MockProvider) -> None:
    mock.play(Reply(text="cut", finish_reason="length"))
    answer = await client.responses.create(model="m", input="hi")
    assert answer.incomplete_details and answer.incomplete_details.reason == "max_output_tokens"


async def test_a_failing_response(client: openai.AsyncOpenAI, mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault(status=400, message="out of cheese")))
    with pytest.raises(openai.InternalServerError, match="out of cheese"):
        await client.responses.create(model="m", input="hi")
    events = [event async for event in await client.responses.create(model="m", input="hi", stream=True)]
    assert [event.type for event in events] == ["response.created", "response.failed"]
    last = events[-1]
    assert last.type == "response.failed" and last.response.error and "out of cheese" in last.response.error.message


async def test_an_unknown_parameter_is_a_422(client: openai.AsyncOpenAI, mock: MockProvider) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="bogus"):
        await client.responses.create(model="m", input="hi", extra_body={"bogus": 1})
    assert mock.count == 0


# --- the Chat Completions API -----------------------------------------------------------------------------------------


async def test_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=[QUESTION], seed=3)
    assert answer.choices[0].message.content == "Not much."
    assert answer.usage and answer.usage.completion_tokens == 2


async def test_a_chat_stream_chunk_by_chunk(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="m", messages=[QUESTION], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].delta.content for chunk in chunks[:-1]] == [None, "Not much.", None]
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage and chunks[-1].usage.completion_tokens == 2
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_chat_stream_helper_with_tools(client: openai.AsyncOpenAI, mock: MockProvider) -> None:
    mock.play(Reply(text=None, tool_calls=(LOOK, ToolCall("look", {"a": 2}, id="c2"))))
    async with client.chat.completions.stream(model="m", messages=[QUESTION], tools=[CHAT_TOOL]) as stream:
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert [(call.id, json.loads(call.function.arguments)) for call in calls] == [("c1", {"a": 1}), ("c2", {"a": 2})]
    assert final.choices[0].finish_reason == "tool_calls"


async def test_reasoning_in_a_chat_stream(serve: Serve, mock: MockProvider) -> None:
    mock.play(Reply(text="Yes.", reasoning="Hm."))
    for server, expected in ((openai_model(mock), ["Hm.", "Yes."]), (vllm_model(mock), ["<think>Hm.</think>Yes."])):
        async with openai.AsyncOpenAI(base_url=f"{await serve(server)}/v1", api_key="k") as client:
            stream = await client.chat.completions.create(model="m", messages=[QUESTION], stream=True)
            deltas = [chunk.choices[0].delta async for chunk in stream]
        texts = [getattr(delta, "reasoning_content", None) or delta.content for delta in deltas]
        assert [text for text in texts if text] == expected


async def test_a_chat_tool_dialogue(client: openai.AsyncOpenAI, mock: MockProvider) -> None:
    mock.play(Reply(text=None, tool_calls=(LOOK,)))
    asked = await client.chat.completions.create(model="m", messages=[QUESTION], tools=[CHAT_TOOL])
    message: Any = asked.choices[0].message.model_dump(exclude_none=True)
    mock.play("Done.")
    result: Any = {"role": "tool", "tool_call_id": "c1", "content": "seen"}
    done = await client.chat.completions.create(model="m", messages=[QUESTION, message, result], tools=[CHAT_TOOL])
    assert done.choices[0].message.content == "Done." and mock.last_body["messages"][2] == result


async def test_a_failing_chat_keeps_its_status_when_streamed(client: openai.AsyncOpenAI, mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault(status=400, message="out of cheese")))
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError, match="out of cheese"):
            await client.chat.completions.create(model="m", messages=[QUESTION], stream=stream)


# --- the Messages API -------------------------------------------------------------------------------------------------


async def test_messages(claude: anthropic.AsyncAnthropic) -> None:
    answer = await claude.messages.create(model="m", max_tokens=9, messages=[QUESTION], system="Be brief.")
    assert answer.content[0].type == "text" and answer.content[0].text == "Not much."
    assert (answer.stop_reason, answer.model, answer.usage.output_tokens) == ("end_turn", "m", 2)


async def test_a_messages_stream_event_by_event(claude: anthropic.AsyncAnthropic, mock: MockProvider) -> None:
    mock.play(Reply(text="Let me look.", reasoning="Hm.", tool_calls=(LOOK,)))
    stream = await claude.messages.create(
        model="m", max_tokens=9, messages=[QUESTION], tools=[MESSAGES_TOOL], stream=True
    )
    events: list[Any] = [event async for event in stream]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [event.type for event in events] == ["message_start", *block * 3, "message_delta", "message_stop"]
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert [delta.type for delta in deltas] == ["thinking_delta", "text_delta", "input_json_delta"]
    assert json.loads(deltas[2].partial_json) == {"a": 1}
    assert events[-2].delta.stop_reason == "tool_use"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_messages_tool_dialogue(claude: anthropic.AsyncAnthropic, mock: MockProvider, streams: bool) -> None:
    async def ask(messages: list[Any]) -> Any:
        options: Any = {"model": "m", "max_tokens": 9, "messages": messages, "tools": [MESSAGES_TOOL]}
        if not streams:
            return await claude.messages.create(**options)
        async with claude.messages.stream(**options) as stream:
            return await stream.get_final_message()

    mock.play(Reply(text=None, reasoning="Look first.", tool_calls=(LOOK,)))
    asked = await ask([QUESTION])
    thinking, call = asked.content
    assert thinking.thinking == "Look first." and (call.name, call.id, call.input) == ("look", "c1", {"a": 1})
    mock.play("Done.")
    history = {"role": "assistant", "content": asked.content}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "seen"}]}
    done = await ask([QUESTION, history, result])
    assert done.content[0].text == "Done." and done.stop_reason == "end_turn"
    assert "seen" in json.dumps(mock.last_body) and "Look first." in json.dumps(mock.last_body)


async def test_what_has_no_form_is_refused_as_the_client_expects(claude: anthropic.AsyncAnthropic) -> None:
    document: Any = [{"type": "document", "source": {"type": "url", "url": "http://x"}}]
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError, match="document") as caught:
            await claude.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": document}], stream=stream
            )
        assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


async def test_a_failing_message(claude: anthropic.AsyncAnthropic, mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault(status=400, message="out of cheese")))
    for stream in (False, True):
        with pytest.raises(anthropic.InternalServerError, match="out of cheese"):
            await claude.messages.create(model="m", max_tokens=9, messages=[QUESTION], stream=stream)


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_a_request_without_a_chat_form_is_a_400(serve: Serve, mock: MockProvider) -> None:
    address = await serve(vllm_model(mock))
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="k") as client:
        with pytest.raises(openai.BadRequestError, match="previous_response_id") as caught:
            await client.responses.create(model="m", input="hi", previous_response_id="r")
        assert caught.value.type == "invalid_request_error"
        assert "previous_response_id" in caught.value.response.json()["detail"]
        assert json.loads(caught.value.response.headers["x-nemo-gym-cause"])["error"] == "UnsupportedInDialect"
        events = [e async for e in await client.responses.create(model="m", input="hi", truncation="auto", stream=True)]
        assert events[-1].type == "response.failed" and events[-1].response.error
        assert events[-1].response.error.code == "invalid_prompt"
    assert mock.count == 0


@pytest.mark.parametrize("path", ["responses", "chat/completions", "messages"])
async def test_a_parser_the_config_denies_is_a_400(serve: Serve, mock: MockProvider, path: str) -> None:
    mock.play(Reply(text="Yes.", reasoning="hm"))
    address = await serve(vllm_model(mock, uses_reasoning_parser=False))
    chat: dict[str, Any] = {"messages": [QUESTION], "model": "m", "max_tokens": 1, "stream": True}
    body = {"input": "hi"} if path == "responses" else chat
    async with httpx.AsyncClient() as plain:
        reply = await plain.post(f"{address}/ng-rollout/1-0/v1/{path}", json=body)
    assert reply.status_code == 400 and "uses_reasoning_parser" in reply.json()["error"]["message"]
    assert (reply.json().get("type") == "error") is (path == "messages")


# --- slow answers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "KEEP_ALIVE_SECONDS", 0.01)


SLOW = Script.of(Reply(text="At last."), latency=0.1)
TOO_LATE = Script.of(Reply(fault=Fault(status=400, message="out of cheese")), latency=0.1)


async def test_comments_keep_a_slow_stream_alive(impatient: None, address: str, mock: MockProvider) -> None:
    bodies: list[tuple[str, dict[str, Any], str]] = [
        ("responses", {"input": "hi"}, "event: response.completed"),
        ("chat/completions", {"messages": [QUESTION]}, "data: [DONE]"),
        ("messages", {"messages": [QUESTION], "model": "m", "max_tokens": 9}, "event: message_stop"),
    ]
    mock.play(SLOW)
    async with httpx.AsyncClient() as plain:
        for path, body, end in bodies:
            reply = await plain.post(f"{address}/v1/{path}", json={**body, "stream": True})
            assert reply.status_code == 200 and reply.text.startswith(replay.KEEP_ALIVE_FRAME)
            assert "At last." in reply.text and end in reply.text
            assert reply.headers["content-type"].startswith("text/event-stream")


async def test_clients_read_over_comments(
    impatient: None, client: openai.AsyncOpenAI, claude: anthropic.AsyncAnthropic, mock: MockProvider
) -> None:
    mock.play(SLOW)
    chunks = [c async for c in await client.chat.completions.create(model="m", messages=[QUESTION], stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "At last."
    async with client.responses.stream(model="m", input="hi") as stream:
        assert (await stream.get_final_response()).output_text == "At last."
    async with claude.messages.stream(model="m", max_tokens=9, messages=[QUESTION]) as messages:
        assert await messages.get_final_text() == "At last."


async def test_late_failures_are_errors_of_the_stream(
    impatient: None, client: openai.AsyncOpenAI, claude: anthropic.AsyncAnthropic, mock: MockProvider
) -> None:
    mock.play(TOO_LATE)
    with pytest.raises(openai.APIError, match="HTTP 400"):
        [c async for c in await client.chat.completions.create(model="m", messages=[QUESTION], stream=True)]
    events = [event async for event in await client.responses.create(model="m", input="hi", stream=True)]
    assert [event.type for event in events] == ["response.created", "response.failed"]
    stream = await claude.messages.create(model="m", max_tokens=9, messages=[QUESTION], stream=True)
    with pytest.raises(anthropic.APIStatusError) as caught:
        [event async for event in stream]
    error = caught.value.body["error"]  # type: ignore[index]
    assert error["message"] == "the model server could not answer" and error["type"] == "invalid_request_error"


async def test_a_client_that_leaves_ends_the_call(impatient: None, address: str, mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault("hang")))
    for path, body in (("responses", {"input": "hi"}), ("chat/completions", {"messages": [QUESTION]})):
        async with (
            httpx.AsyncClient() as plain,
            plain.stream("POST", f"{address}/v1/{path}", json={**body, "stream": True}) as reply,
        ):
            async for text in reply.aiter_text():
                assert text.startswith(replay.KEEP_ALIVE_FRAME)
                break
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="k") as client:
        mock.play("Still here.")
        assert (await client.responses.create(model="m", input="hi")).output_text == "Still here."
