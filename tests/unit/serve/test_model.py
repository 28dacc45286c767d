from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from pydantic import ValidationError
from starlette.responses import PlainTextResponse, StreamingResponse

from nemo_gym import base_responses_api_model
from nemo_gym.base_responses_api_model import (
    BaseResponsesAPIModelConfig,
    Body,
    ModelCallCaptureConfig,
    NonGeneratingRequest,
    SimpleResponsesAPIModel,
    observability_enabled_from_config,
    start_model_execution,
)
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.serve import replay
from nemo_gym.serve.replay import replayed
from tests.unit.serve.toys import RESPONSE, mock_client

TEXT = {"type": "output_text", "text": "hello", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]}
CHAT: dict[str, Any] = {
    "id": "chat_1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
}
MESSAGES = {"model": "claude", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
ASK_CHAT = {"messages": [{"role": "user", "content": "hi"}]}


class ToyModel(SimpleResponsesAPIModel):
    fail_with: Any = None
    seen: list[Any] = []

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        self._note(body)
        return NeMoGymChatCompletion.model_validate(CHAT)

    async def responses(  # type: ignore[override]
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        self._note(body)
        assert request.url.path in ("/v1/responses", "/v1/messages")
        return NeMoGymResponse.model_validate({**RESPONSE, "output": [MESSAGE], "own_field": 1})

    def _note(self, body: Any) -> None:
        self.seen.append((body.model_dump(exclude_unset=True), current_rollout_id()))
        if self.fail_with:
            raise self.fail_with


def model_of(cls: type[ToyModel] = ToyModel, config: Any = None, **fields: Any) -> ToyModel:
    settings = {"host": "127.0.0.1", "port": 1, "entrypoint": "", "name": "policy", **fields}
    return cls(config=BaseResponsesAPIModelConfig.model_validate(settings), server_client=mock_client(config), seen=[])


@pytest.fixture
def model() -> ToyModel:
    return model_of()


@pytest.fixture
def client(model: ToyModel) -> TestClient:
    return TestClient(model.setup_webserver())


def events(text: str) -> list[tuple[str | None, Any]]:
    """(event, decoded data) of an event stream; comments as they are."""
    found: list[tuple[str | None, Any]] = []
    for frame in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if lines:
            data = lines["data"]
            found.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
        elif frame:
            found.append((None, frame))
    return found


# --- whole answers ----------------------------------------------------------------------------------------------------


def test_responses(model: ToyModel, client: TestClient) -> None:
    reply = client.post("/v1/responses", json={"input": "hi", "temperature": 0.5})
    body = reply.json()
    assert (reply.status_code, body["output"][0]["content"][0]["text"], body["own_field"]) == (200, "hello", 1)
    assert model.seen == [({"input": "hi", "temperature": 0.5}, None)]


def test_chat(model: ToyModel, client: TestClient) -> None:
    body = client.post("/v1/chat/completions", json=ASK_CHAT).json()
    assert body["choices"][0]["message"]["content"] == "hello"


def test_messages(model: ToyModel, client: TestClient) -> None:
    body = client.post("/v1/messages", json=MESSAGES).json()
    assert (body["type"], body["content"][0]["text"], body["model"]) == ("message", "hello", "claude")
    assert model.seen[0][0]["max_output_tokens"] == 5


def test_unknown_messages_content_is_the_clients_mistake(client: TestClient) -> None:
    content = [{"type": "holograph"}]
    reply = client.post("/v1/messages", json={**MESSAGES, "messages": [{"role": "user", "content": content}]})
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [{}, {"messages": 5}, {"messages": [5]}, {**MESSAGES, "tools": 7}])
def test_malformed_messages_are_no_server_error(client: TestClient, body: Any) -> None:
    assert client.post("/v1/messages", json=body).status_code in (200, 400, 422)


@pytest.mark.parametrize("field", ["messages", "max_tokens"])
@pytest.mark.parametrize("given", [{}, {"stream": True}, None])
def test_what_a_messages_request_must_say(model: ToyModel, client: TestClient, field: str, given: Any) -> None:
    """The Messages API's own words, also where null is given and where a stream was asked for."""
    body = {key: value for key, value in MESSAGES.items() if key != field}
    reply = client.post("/v1/messages", json=body | ({field: None} if given is None else given))

    error = {"type": "invalid_request_error", "message": f"{field}: Field required"}
    assert (reply.status_code, reply.json()["type"], reply.json()["error"]) == (400, "error", error)
    assert model.seen == []


WRONG: list[tuple[str, Any, list[Any], bool]] = [
    ("/v1/responses", {}, ["body", "input"], True),
    ("/v1/responses", {"input": "x", "bogus": 1}, ["body", "bogus"], True),
    ("/v1/chat/completions", {}, ["body", "messages"], False),
    ("/v1/chat/completions", {**ASK_CHAT, "stream": "yes"}, ["body", "stream"], False),
]


@pytest.mark.parametrize(("path", "body", "loc", "has_url"), WRONG)
def test_wrong_requests_are_422_where_they_are_wrong(
    client: TestClient, path: str, body: Any, loc: list[Any], has_url: bool
) -> None:
    reply = client.post(path, json=body)
    (detail,) = [item for item in reply.json()["detail"] if item["loc"] == loc]
    assert reply.status_code == 422 and ("url" in detail) is has_url


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
def test_a_body_that_is_no_object_is_422(client: TestClient, path: str) -> None:
    assert client.post(path, json=[1]).status_code == 422


@pytest.mark.parametrize("prefix", ["/ng-rollout/7-0", "/ng-rollout/7-0/training-token-capture"])
def test_the_rollout_prefix_is_stripped_and_known(model: ToyModel, client: TestClient, prefix: str) -> None:
    assert client.post(f"{prefix}/v1/responses", json={"input": "x"}).status_code == 200
    assert model.seen[0][1] == "7-0"


class Finalizing(ToyModel):
    async def _finalize_served_response(self, response: Any) -> Any:
        response.headers["x-final"] = "1"
        return response

    async def chat_completions(self, body: Any = Body()) -> Any:
        return PlainTextResponse("as it is")


def test_the_served_response_can_be_changed_last() -> None:
    client = TestClient(model_of(Finalizing).setup_webserver())
    assert client.post("/v1/responses", json={"input": "x"}).headers["x-final"] == "1"
    reply = client.post("/v1/chat/completions", json=ASK_CHAT)
    assert (reply.text, reply.headers["x-final"]) == ("as it is", "1")


def test_encoding_is_looked_up_where_tests_patch_it(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    patched = lambda content: PlainTextResponse(type(content).__name__)  # noqa: E731
    monkeypatch.setattr(base_responses_api_model, "_orjson_dispatch_response", patched)
    assert client.post("/v1/responses", json={"input": "x"}).text == "NeMoGymResponse"


# --- streams ----------------------------------------------------------------------------------------------------------


def test_responses_stream(model: ToyModel, client: TestClient) -> None:
    reply = client.post("/v1/responses", json={"input": "hi", "stream": True, "stream_options": {}, "unknown": 1})
    names = [name for name, _ in events(reply.text)]
    assert names[0] == "response.created" and names[-1] == "response.completed"
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert (reply.headers["cache-control"], reply.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert "stream" not in model.seen[0][0]


def test_a_failing_responses_stream_is_a_failed_response(model: ToyModel, client: TestClient) -> None:
    model.fail_with = ValueError("no model")
    reply = client.post("/v1/responses", json={"input": "hi", "stream": True})
    names = [name for name, _ in events(reply.text)]
    assert (reply.status_code, names) == (200, ["response.created", "response.failed"])
    assert "no model" in reply.text


def test_a_wrong_streaming_request_is_422(client: TestClient) -> None:
    assert client.post("/v1/responses", json={"input": 5, "stream": True}).status_code == 422
    assert client.post("/v1/chat/completions", json={"stream": True}).status_code == 422


def test_chat_stream(client: TestClient) -> None:
    reply = client.post("/v1/chat/completions", json={**ASK_CHAT, "stream": True})
    frames = events(reply.text)
    assert frames[-1][1] == "[DONE]"
    assert any("hello" in json.dumps(data) for _, data in frames)


def test_messages_stream(client: TestClient) -> None:
    frames = events(client.post("/v1/messages", json={**MESSAGES, "stream": True}).text)
    assert frames[0][0] == "message_start" and frames[-1][0] == "message_stop"


def test_a_chat_failure_at_once_keeps_its_status(model: ToyModel, client: TestClient) -> None:
    model.fail_with = HTTPException(429, "slow down")
    reply = client.post("/v1/chat/completions", json={**ASK_CHAT, "stream": True})
    assert (reply.status_code, reply.json()) == (429, {"detail": "slow down"})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "KEEP_ALIVE_SECONDS", 0.01)


async def stream_text(call: Any) -> str:
    response = await replayed(call, lambda answer: [f"data: {json.dumps(answer)}\n\n"], replay.chat_failure_frames)
    assert isinstance(response, StreamingResponse)
    return "".join([str(part) async for part in response.body_iterator])


async def after(seconds: float, outcome: Any) -> Any:
    await asyncio.sleep(seconds)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def test_a_slow_answer_is_announced_by_comments(impatient: None) -> None:
    text = await stream_text(after(0.05, {"a": 1}))
    assert text.startswith(replay.KEEP_ALIVE_FRAME) and text.endswith('data: {"a": 1}\n\n')


LATE = [
    (HTTPException(404, "no such model"), 404, "HTTP 404: no such model", "invalid_request_error"),
    (ValueError("secret detail"), 500, "HTTP 500: the model server could not answer", "server_error"),
]


@pytest.mark.parametrize(("error", "code", "message", "kind"), LATE)
async def test_a_late_failure_is_the_last_event(
    impatient: None, error: Exception, code: int, message: str, kind: str
) -> None:
    frames = events(await stream_text(after(0.05, error)))
    assert frames[-1] == ("error", {"error": {"message": message, "type": kind, "code": code}})


async def test_a_client_that_leaves_cancels_the_call(impatient: None) -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    response = await replayed(work(), lambda _: [], replay.chat_failure_frames)
    assert isinstance(response, StreamingResponse)
    parts: Any = response.body_iterator
    await parts.__anext__()
    await parts.aclose()
    async with asyncio.timeout(20):
        await cancelled.wait()

    cancelled.clear()
    task = asyncio.create_task(replayed(work(), lambda _: [], replay.chat_failure_frames))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(20):
        await cancelled.wait()


# --- configuration ----------------------------------------------------------------------------------------------------


def test_capture_needs_an_absolute_folder(tmp_path: Path) -> None:
    assert ModelCallCaptureConfig.model_validate({"observability_enabled": False}).model_call_capture_dir is None
    ModelCallCaptureConfig(observability_enabled=True, model_call_capture_dir=tmp_path)
    for folder in (None, Path("relative")):
        with pytest.raises(ValidationError, match="model_call_capture_dir"):
            ModelCallCaptureConfig(observability_enabled=True, model_call_capture_dir=folder)


def test_observability_is_read_tolerantly() -> None:
    assert observability_enabled_from_config({"observability_enabled": True})
    assert not observability_enabled_from_config(None) and not observability_enabled_from_config(mock_client())


def test_routes_that_generate_nothing_are_exact() -> None:
    assert NonGeneratingRequest(method="post", path="/x") == NonGeneratingRequest(method="POST", path="/x")
    for method, path in (("P0ST", "/x"), ("GET", "x"), ("GET", "/x?y"), ("GET", "/{x}")):
        with pytest.raises(ValidationError):
            NonGeneratingRequest(method=method, path=path)


def test_the_outcome_of_a_call_stays_with_its_request() -> None:
    request = Request({"type": "http", "state": {}})
    outcome = start_model_execution(request, upstream_attempted=True)
    outcome["upstream_status_code"] = 503
    assert request.state.nemo_gym_model_execution == {
        "upstream_attempted": True,
        "response_source": None,
        "upstream_status_code": 503,
        "local_response_reason": None,
    }


class Extended(ToyModel):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/tokenize")(self.tokenize)
        return app

    async def tokenize(self, body: dict[str, Any]) -> list[int]:
        return [len(body)]


def test_a_subclass_adds_routes() -> None:
    assert TestClient(model_of(Extended).setup_webserver()).post("/tokenize", json={"a": 1}).json() == [1]
