from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.server_utils import ServerClient
from responses_api_models.vllm_model_with_compaction.app import (
    VLLMModelWithCompaction,
    VLLMModelWithCompactionConfig,
)
from tests.mock_provider import MockProvider, Reply

COMPONENT = Path(__file__).parents[1]
CHAT = "/v1/chat/completions"
QUESTION = {"role": "user", "content": "What is up?"}
SEAT = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.", prompt_token_ids=(1, 2, 3))) as provider:
        yield provider


def make_client(mock: MockProvider, **config: Any) -> TestClient:
    fields = {"base_url": mock.base_url, "api_key": "key", "model": "forced", "uses_reasoning_parser": True}
    fields |= {"return_token_id_information": True, "request_prompt_and_generation_token_ids": True}
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {}
    server = VLLMModelWithCompaction(
        config=VLLMModelWithCompactionConfig.model_validate({**SEAT, **fields, **config}), server_client=client
    )
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app)


@pytest.mark.parametrize(("path", "body"), [("/v1/responses", {"input": [QUESTION]}), (CHAT, {"messages": [QUESTION]})])
def test_a_required_prefix_goes_to_the_engine(mock: MockProvider, path: str, body: dict[str, Any]) -> None:
    reply = make_client(mock).post(path, json={**body, "required_prefix_token_ids": [1, 2]})
    assert reply.status_code == 200, reply.text
    assert mock.last_body["required_prefix_token_ids"] == [1, 2]
    whole = reply.json()
    holder = whole["output"][-1] if "output" in whole else whole["choices"][0]["message"]
    assert holder["prompt_token_ids"] == [1, 2, 3]


@pytest.mark.parametrize("prefix", [{}, {"required_prefix_token_ids": None}])
def test_without_one_nothing_is_added(mock: MockProvider, prefix: dict[str, Any]) -> None:
    assert make_client(mock).post("/v1/responses", json={"input": "hi", **prefix}).status_code == 200
    assert "required_prefix_token_ids" not in mock.last_body


def test_a_streamed_request_may_have_one(mock: MockProvider) -> None:
    body = {"input": "hi", "stream": True, "required_prefix_token_ids": [1]}
    assert "response.completed" in make_client(mock).post("/v1/responses", json=body).text
    assert mock.last_body["required_prefix_token_ids"] == [1]


def test_an_engine_that_ignores_the_prefix_is_noticed(mock: MockProvider) -> None:
    reply = make_client(mock).post("/v1/responses", json={"input": "hi", "required_prefix_token_ids": [9]})
    assert reply.status_code == 500 and "doesn't begin" in reply.json()


@pytest.mark.parametrize("prefix", ["12", [1.5], [True], {"a": 1}])
def test_a_prefix_that_is_none_is_a_422(mock: MockProvider, prefix: Any) -> None:
    reply = make_client(mock).post("/v1/responses", json={"input": "hi", "required_prefix_token_ids": prefix})
    assert reply.status_code == 422 and reply.json()["detail"][0]["loc"][:2] == ["body", "required_prefix_token_ids"]
    assert mock.count == 0


def test_prompts_are_not_tokenized_afterwards(mock: MockProvider) -> None:
    client = make_client(mock, request_prompt_and_generation_token_ids=False)
    reply = client.post("/v1/responses", json={"input": "hi"})
    assert reply.status_code == 500 and "request_prompt_and_generation_token_ids" in reply.json()
    assert mock.bodies("/tokenize") == []


@pytest.mark.parametrize(
    "body",
    [{"input": [QUESTION], "instructions": "Be brief."}, {"messages": [QUESTION], "chat_template_kwargs": {"a": 1}}],
)
def test_a_prompt_is_counted_without_generating(mock: MockProvider, body: dict[str, Any]) -> None:
    reply = make_client(mock).post("/tokenize", json={**body, "required_prefix_token_ids": [1, 2]})
    assert reply.status_code == 200 and reply.json()["tokens"]
    (asked,) = mock.requests
    assert (asked.path, asked.body["model"]) == ("/tokenize", "forced")
    assert asked.body["required_prefix_token_ids"] == [1, 2] and asked.body["messages"][-1] == QUESTION


@pytest.mark.parametrize(
    ("body", "status"), [({}, 422), ({"messages": 5}, 422), ({"input": "x", "prompt": {"id": "p"}}, 400)]
)
def test_what_cannot_be_tokenized_is_the_callers_mistake(mock: MockProvider, body: dict[str, Any], status: int) -> None:
    assert make_client(mock).post("/tokenize", json=body).status_code == status


@pytest.mark.parametrize("switch", ["use_completions_api", "is_responses_native"])
def test_paths_without_prompt_ids_are_refused(mock: MockProvider, switch: str) -> None:
    with pytest.raises(ValidationError, match=switch):
        make_client(mock, **{switch: True})


def test_tokenizing_generates_nothing() -> None:
    assert VLLMModelWithCompaction.non_generating_model_routes == {("POST", "/tokenize")}


def test_shipped_config() -> None:
    policy = {"policy_base_url": "http://x/v1", "policy_api_key": "k", "policy_model_name": "m"}
    loaded = OmegaConf.load(COMPONENT / "configs" / "vllm_model_with_compaction.yaml")
    config: Any = OmegaConf.merge(loaded, policy)
    models = config.policy_model.responses_api_models
    block: Any = OmegaConf.to_container(models.vllm_model_with_compaction, resolve=True)
    assert VLLMModelWithCompactionConfig.model_validate({**SEAT, **block}).base_url == ["http://x/v1"]
