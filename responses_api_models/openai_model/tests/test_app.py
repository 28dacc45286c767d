from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.server_utils import ServerClient
from responses_api_models.openai_model.app import SimpleModelServer, SimpleModelServerConfig
from tests.mock_provider import Fault, MockProvider, Reply, Script, ToolCall

COMPONENT = Path(__file__).parents[1]
QUESTION = {"role": "user", "content": "What is up?"}


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.")) as provider:
        yield provider


def make_server(mock: MockProvider, **config: Any) -> SimpleModelServer:
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {}
    fields = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model", "openai_model": "forced"}
    fields |= {"openai_base_url": mock.base_url, "openai_api_key": "key"}
    return SimpleModelServer(config=SimpleModelServerConfig(**fields | config), server_client=client)


def make_client(mock: MockProvider, **config: Any) -> TestClient:
    server = make_server(mock, **config)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app)


def post(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def test_responses_pass_through(mock: MockProvider) -> None:
    client = make_client(mock, openai_default_headers={"X-Team": "gym"}, extra_body={"temperature": 0.5, "top_p": 0.1})
    body = {"input": [QUESTION], "model": "asked", "temperature": 1.0, "max_output_tokens": 7}
    answer = post(client, "/v1/responses", body)
    assert answer["output"][0]["content"][0]["text"] == "Not much."
    (request,) = mock.requests
    assert request.path == "/v1/responses"
    assert request.body == {**body, "model": "forced", "top_p": 0.1}
    assert request.headers["authorization"] == "Bearer key" and request.headers["x-team"] == "gym"


def test_chat_completions_pass_through(mock: MockProvider) -> None:
    answer = post(make_client(mock), "/v1/chat/completions", {"messages": [QUESTION], "seed": 3})
    assert answer["choices"][0]["message"]["content"] == "Not much."
    assert mock.last_body == {"messages": [QUESTION], "seed": 3, "model": "forced"}


def test_messages_go_through_responses(mock: MockProvider) -> None:
    answer = post(make_client(mock), "/v1/messages", {"messages": [QUESTION], "model": "m", "max_tokens": 5})
    assert answer["content"] == [{"type": "text", "text": "Not much."}]
    assert mock.requests[0].path == "/v1/responses"


def test_unknown_fields_of_the_answer_survive(mock: MockProvider) -> None:
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "vendor": {"x": 1}}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None, "vendor": [1]}}
    mock.play(Reply(raw={**completion, "choices": [choice]}))
    answer = post(make_client(mock), "/v1/chat/completions", {"messages": [QUESTION]})
    assert answer["vendor"] == {"x": 1}
    assert answer["choices"][0]["message"]["vendor"] == [1]


def test_tool_dialogue_is_replayed_unchanged(mock: MockProvider) -> None:
    client = make_client(mock)
    mock.play(Reply(text=None, reasoning="Look.", tool_calls=(ToolCall("look", {"a": 1}, id="c1"),)))
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    output = post(client, "/v1/responses", {"input": [QUESTION], "tools": [tool]})["output"]
    result = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
    mock.play("Done.")
    post(client, "/v1/responses", {"input": [QUESTION, *output, result], "tools": [tool]})
    sent = mock.last_body
    assert sent["tools"] == [tool]
    assert [item.get("type", item.get("role")) for item in sent["input"]] == [
        "user",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert sent["input"][2]["arguments"] == '{"a": 1}'


def test_types_left_out_on_the_way_are_restored(mock: MockProvider) -> None:
    items = [QUESTION, {"call_id": "c1", "name": "f", "arguments": "{}"}, {"call_id": "c1", "output": "x"}]
    post(make_client(mock), "/v1/responses", {"input": items})
    assert [item.get("type") for item in mock.last_body["input"]] == [None, "function_call", "function_call_output"]


def test_reasoning_can_be_left_out_of_the_history(mock: MockProvider) -> None:
    reasoning = {"id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
    body = {"input": [QUESTION, reasoning, {**reasoning, "type": "reasoning"}]}
    post(make_client(mock, drop_input_reasoning_items=True), "/v1/responses", body)
    assert mock.last_body["input"] == [QUESTION]
    post(make_client(mock), "/v1/responses", {**body, "input": body["input"][:2]})
    assert [item.get("type") for item in mock.last_body["input"]] == [None, "reasoning"]


@pytest.mark.parametrize("extra", [{}, {"tool_choice": "auto", "parallel_tool_calls": True}])
def test_empty_tools_are_not_sent(mock: MockProvider, extra: dict[str, Any]) -> None:
    post(make_client(mock), "/v1/responses", {"input": "hi", "tools": [], **extra})
    assert mock.last_body == {"input": "hi", "model": "forced"}
    post(make_client(mock), "/v1/chat/completions", {"messages": [QUESTION], "tools": [], **extra})
    assert mock.last_body == {"messages": [QUESTION], "model": "forced"}


def test_rate_limits_are_waited_out(mock: MockProvider) -> None:
    mock.play(Script.in_order(Reply(fault=Fault(status=429, retry_after=0)), Reply(text="ok")))
    assert post(make_client(mock), "/v1/responses", {"input": "hi"})["output"]
    assert mock.count == 2


def test_a_failing_provider_is_named_in_the_500(mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault(status=500, message="out of cheese")))
    reply = make_client(mock, max_http_attempts=1).post("/v1/responses", json={"input": "hi"})
    assert reply.status_code == 500
    assert "out of cheese" in reply.json() and "SimpleModelServer___policy_model" in reply.json()
    assert mock.count == 1


def test_an_answer_that_is_none_is_refused(mock: MockProvider) -> None:
    mock.play(Reply(raw={"id": "r", "object": "response"}))
    assert make_client(mock).post("/v1/responses", json={"input": "hi"}).status_code == 500


def test_unknown_request_fields_are_refused(mock: MockProvider) -> None:
    assert make_client(mock).post("/v1/responses", json={"input": "hi", "bogus": 1}).status_code == 422
    assert mock.count == 0


async def test_concurrency_is_bounded(mock: MockProvider) -> None:
    server = make_server(mock, max_concurrent_requests=2)
    mock.play(Script.of(Reply(text="x"), latency=0.02))
    from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming as Params

    await asyncio.gather(*(server.responses(Params(input="hi")) for _ in range(6)))
    assert (mock.count, mock.max_in_flight) == (6, 2)


@pytest.mark.parametrize("path", sorted((COMPONENT / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = {"policy_base_url": "http://x/v1", "policy_api_key": "k", "policy_model_name": "m"}
    monkeypatch.setenv("POLICY_DROP_REASONING_ITEMS", "true")
    config: Any = OmegaConf.merge(OmegaConf.load(path), policy)
    block: Any = OmegaConf.to_container(config.policy_model.responses_api_models.openai_model, resolve=True)
    parsed = SimpleModelServerConfig.model_validate({**block, "host": "h", "port": 1, "name": "policy_model"})
    assert parsed.drop_input_reasoning_items is True
    assert parsed.openai_model == ("m" if path.parent.name == "configs" else path.stem)


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("/v1/responses", {"input": "x"}, "Response"),
        ("/v1/messages", {"messages": [QUESTION], "model": "m", "max_tokens": 5}, "Response"),
        ("/v1/chat/completions", {"messages": [QUESTION]}, "chat completion"),
    ],
)
def test_a_200_without_an_answer_ends_as_one_sentence(
    mock: MockProvider, path: str, body: dict[str, Any], what: str
) -> None:
    mock.play(Reply(raw={"error": {"message": "out of cheese"}}))
    reply = make_client(mock).post(path, json=body)
    told = f"the backend at {mock.base_url} answered 200 with no {what}: 'id' is missing; its error: "
    assert reply.status_code == 500
    assert told in reply.json() and "out of cheese" in reply.json() and len(reply.json()) < 300
