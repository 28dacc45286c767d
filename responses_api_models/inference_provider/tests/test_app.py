from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from responses_api_models.inference_provider.app import (
    InferenceProviderModelServer,
    InferenceProviderModelServerConfig,
)
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


def make_server(mock: MockProvider, **config: Any) -> InferenceProviderModelServer:
    fields = {**SEAT, "base_url": mock.base_url, "api_key": "key", "model": "forced", **config}
    return InferenceProviderModelServer(
        config=InferenceProviderModelServerConfig.model_validate(fields), server_client=MagicMock(spec=ServerClient)
    )


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


def test_responses_become_chat_completions(mock: MockProvider) -> None:
    client = make_client(mock, extra_body={"temperature": 0.5, "top_k": 3})
    before = int(time.time())
    answer = post(client, "/v1/responses", {"input": [QUESTION], "temperature": 1.0, "max_output_tokens": 7})
    assert answer["output"][0]["content"][0]["text"] == "Not much." and answer["created_at"] >= before
    assert answer["usage"]["output_tokens"] == 2
    (request,) = mock.requests
    assert (request.path, request.headers["authorization"]) == (CHAT, "Bearer key")
    expected = {"messages": [QUESTION], "model": "forced", "temperature": 1.0, "top_k": 3, "max_tokens": 7}
    assert request.body == expected


def test_chat_and_messages(mock: MockProvider) -> None:
    client = make_client(mock)
    answer = post(client, CHAT, {"messages": [QUESTION], "seed": 3, "tools": []})
    assert answer["choices"][0]["message"]["content"] == "Not much."
    assert mock.last_body == {"messages": [QUESTION], "seed": 3, "model": "forced"}
    message = post(client, "/v1/messages", {"messages": [QUESTION], "model": "m", "max_tokens": 5})
    assert message["content"] == [{"type": "text", "text": "Not much."}] and mock.requests[-1].path == CHAT


def test_tool_dialogue(mock: MockProvider) -> None:
    client = make_client(mock)
    mock.play(Reply(text=None, tool_calls=(ToolCall("look", {"a": 1}, id="c1"),)))
    output = post(client, "/v1/responses", {"input": [QUESTION], "tools": [TOOL]})["output"]
    mock.play("Done.")
    result = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
    post(client, "/v1/responses", {"input": [QUESTION, *output, result], "tools": [TOOL]})
    assert [message["role"] for message in mock.last_body["messages"]] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_and_not_sent_again(mock: MockProvider, field: Any) -> None:
    client = make_client(mock, uses_reasoning_parser=True)
    mock.play(Reply(text="Yes.", reasoning="hm", reasoning_field=field))
    chat = post(client, CHAT, {"messages": [QUESTION]})["choices"][0]["message"]
    assert chat["content"] == "<think>hm</think>Yes." and not chat.get(field)
    output = post(client, "/v1/responses", {"input": [QUESTION]})["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    post(client, "/v1/responses", {"input": [QUESTION, *output, QUESTION]})
    assert mock.last_body["messages"][1] == {"role": "assistant", "content": "Yes."}


def test_without_a_parser_text_stays_text(mock: MockProvider) -> None:
    client = make_client(mock)
    mock.play(Reply(text="Yes.", reasoning="hm", reasoning_field="think_tags"))
    output = post(client, "/v1/responses", {"input": [QUESTION]})["output"]
    assert output[0]["content"][0]["text"] == "<think>hm</think>Yes."
    post(client, "/v1/responses", {"input": [QUESTION, *output, QUESTION]})
    assert mock.last_body["messages"][1]["content"] == "<think>hm</think>Yes."
    mock.play(Reply(text="Yes.", reasoning="hm"))
    assert post(client, "/v1/responses", {"input": "hi"})["output"][0]["content"][0]["text"] == "Yes."


def test_errors(mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault(status=400, message="out of cheese")))
    reply = make_client(mock).post("/v1/responses", json={"input": "hi"})
    assert reply.status_code == 500 and "out of cheese" in reply.json()
    refused = make_client(mock).post("/v1/responses", json={"input": "hi", "truncation": "auto"})
    assert refused.status_code == 400 and "truncation" in refused.json()["error"]["message"]


async def test_concurrency_is_bounded(mock: MockProvider) -> None:
    import asyncio

    server = make_server(mock, num_concurrent_requests=2)
    mock.play(Script.of(Reply(text="x"), latency=0.02))
    params = NeMoGymResponseCreateParamsNonStreaming(input="hi")
    await asyncio.gather(*(server.responses(params) for _ in range(6)))
    assert (mock.count, mock.max_in_flight) == (6, 2)


async def test_ids_come_from_where_tests_patch_them(mock: MockProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.responses_converter.uuid4", lambda: MagicMock(hex="123"))
    response = await make_server(mock).responses(NeMoGymResponseCreateParamsNonStreaming(input="hi"))
    item: Any = response.output[0]
    assert (response.id, item.id) == ("resp_123", "msg_123")


HOSTED = {
    "baseten": "https://inference.baseten.co/v1",
    "deepinfra": "https://api.deepinfra.com/v1/openai",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "friendli": "https://api.friendli.ai/serverless/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "hf_inference": "https://router.huggingface.co/v1",
    "inference_provider": "http://x/v1",
    "nebius": "https://api.tokenfactory.nebius.com/v1/",
    "openrouter": "https://openrouter.ai/api/v1",
    "together": "https://api.together.xyz/v1",
}


def test_every_preset_is_known() -> None:
    assert {path.stem for path in (COMPONENT / "configs").glob("*.yaml")} == HOSTED.keys()


@pytest.mark.parametrize("name", HOSTED)
def test_shipped_configs(name: str) -> None:
    policy = {"policy_base_url": "http://x/v1", "policy_api_key": "k", "policy_model_name": "m"}
    config: Any = OmegaConf.merge(OmegaConf.load(COMPONENT / "configs" / f"{name}.yaml"), policy)
    block: Any = OmegaConf.to_container(config.policy_model.responses_api_models.inference_provider, resolve=True)
    parsed = InferenceProviderModelServerConfig.model_validate({**SEAT, **block})
    assert (parsed.base_url, parsed.api_key, parsed.model) == (HOSTED[name], "k", "m")
    assert (parsed.uses_reasoning_parser, parsed.num_concurrent_requests) == (False, 1000)
