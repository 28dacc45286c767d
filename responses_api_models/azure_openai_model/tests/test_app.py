from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from responses_api_models.azure_openai_model.app import AzureOpenAIModelServer, AzureOpenAIModelServerConfig
from tests.mock_provider import Fault, MockProvider, Reply, Script, ToolCall

COMPONENT = Path(__file__).parents[1]
CHAT = "/v1/chat/completions"
QUESTION = {"role": "user", "content": "What is up?"}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
SEAT = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.")) as provider:
        yield provider


def make_server(mock: MockProvider, **config: Any) -> AzureOpenAIModelServer:
    fields: dict[str, Any] = {"openai_base_url": mock.url, "openai_api_key": "key", "openai_model": "deployed"}
    fields |= {"default_query": {"api-version": "2024-10-21"}}
    return AzureOpenAIModelServer(
        config=AzureOpenAIModelServerConfig.model_validate({**SEAT, **fields, **config}),
        server_client=MagicMock(spec=ServerClient),
    )


@pytest.fixture
def client(mock: MockProvider) -> Iterator[TestClient]:
    server = make_server(mock)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    with TestClient(app) as found:
        yield found


def post(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def test_responses_become_chat_completions_of_the_deployment(mock: MockProvider, client: TestClient) -> None:
    answer = post(client, "/v1/responses", {"input": [QUESTION], "model": "asked", "max_output_tokens": 7})
    assert answer["output"][0]["content"][0]["text"] == "Not much."
    assert (answer["usage"]["input_tokens"] > 0, answer["usage"]["output_tokens"]) == (True, 2)
    (request,) = mock.requests
    assert (request.path, request.query) == (
        "/openai/deployments/deployed/chat/completions",
        "api-version=2024-10-21",
    )
    assert request.headers["api-key"] == "key"
    assert request.body == {"messages": [QUESTION], "model": "deployed", "max_tokens": 7}


def test_chat_and_messages(mock: MockProvider, client: TestClient) -> None:
    answer = post(client, CHAT, {"messages": [QUESTION], "seed": 3})
    assert answer["choices"][0]["message"]["content"] == "Not much."
    message = post(client, "/v1/messages", {"messages": [QUESTION], "model": "m", "max_tokens": 5})
    assert message["content"] == [{"type": "text", "text": "Not much."}]


def test_tool_dialogue(mock: MockProvider, client: TestClient) -> None:
    mock.play(Reply(text=None, tool_calls=(ToolCall("look", {"a": 1}, id="c1"),)))
    (call,) = post(client, "/v1/responses", {"input": [QUESTION], "tools": [TOOL]})["output"]
    assert (call["type"], call["call_id"], call["arguments"]) == ("function_call", "c1", '{"a": 1}')


def test_errors_carry_the_backends_words(mock: MockProvider, client: TestClient) -> None:
    mock.play(Reply(fault=Fault(status=400, message="out of cheese")))
    reply = client.post("/v1/responses", json={"input": "hi"})
    assert reply.status_code == 500 and "out of cheese" in reply.json() and "answered 400" in reply.json()


async def test_concurrency_is_bounded_for_chat_too(mock: MockProvider) -> None:
    server = make_server(mock, num_concurrent_requests=2)
    mock.play(Script.of(Reply(text="x"), latency=0.02))
    params = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate({"messages": [QUESTION]})
    await asyncio.gather(*(server.chat_completions(params) for _ in range(6)))
    assert (mock.count, mock.max_in_flight) == (6, 2)


def test_a_whole_base_url_is_taken_as_it_is(mock: MockProvider) -> None:
    server = make_server(mock, openai_base_url=f"{mock.url}/openai/deployments/other")
    with TestClient(server.setup_webserver()) as client:
        post(client, CHAT, {"messages": [QUESTION]})
    assert mock.requests[-1].path == "/openai/deployments/other/chat/completions"


def test_the_api_version_is_asked_for(mock: MockProvider) -> None:
    with pytest.raises(ValidationError, match="api-version"):
        make_server(mock, default_query={})


def test_shipped_config() -> None:
    policy = {"policy_base_url": "http://x", "policy_api_key": "k", "policy_model_name": "m"}
    loaded = OmegaConf.load(COMPONENT / "configs" / "azure_openai_model.yaml")
    config: Any = OmegaConf.merge(loaded, policy)
    block = config.policy_model.responses_api_models.azure_openai_model
    assert OmegaConf.is_missing(block.default_query, "api-version")
    block.default_query["api-version"] = "v"
    settings: Any = OmegaConf.to_container(block, resolve=True)
    parsed = AzureOpenAIModelServerConfig.model_validate({**SEAT, **settings})
    assert (parsed.openai_model, parsed.num_concurrent_requests) == ("m", 8)
