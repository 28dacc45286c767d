"""A vLLM model server under test, and how to ask it."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
from tests.mock_provider import MockProvider

CHAT = "/v1/chat/completions"
QUESTION = {"role": "user", "content": "What is up?"}


def make_config(base_url: Any, **config: Any) -> VLLMModelConfig:
    fields = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model", "base_url": base_url}
    fields |= {"api_key": "key", "model": "forced", "return_token_id_information": False, "uses_reasoning_parser": True}
    return VLLMModelConfig.model_validate(fields | config)


def make_server(base_url: Any, **config: Any) -> VLLMModel:
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {}
    return VLLMModel(config=make_config(base_url, **config), server_client=client)


def make_client(mock: MockProvider, **config: Any) -> TestClient:
    server = make_server(mock.base_url, **config)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app)


def post(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer
