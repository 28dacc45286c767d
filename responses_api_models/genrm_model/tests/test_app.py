from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.server_utils import ServerClient
from responses_api_models.genrm_model.app import GenRMModel, GenRMModelConfig
from tests.mock_provider import MockProvider, Reply

COMPONENT = Path(__file__).parents[1]
QUESTION = {"role": "user", "content": "What is up?"}
PAIR = {"response_1": "Not much.", "response_2": "The sky."}
SEAT = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "genrm_model"}


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text='{"score_1": 4, "score_2": 2}')) as provider:
        yield provider


def make_client(mock: MockProvider, **config: Any) -> TestClient:
    fields = {"base_url": mock.base_url, "api_key": "key", "model": "forced"}
    switches = {"return_token_id_information": False, "uses_reasoning_parser": True}
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {}
    server = GenRMModel(
        config=GenRMModelConfig.model_validate({**SEAT, **fields, **switches, **config}), server_client=client
    )
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/responses", {"input": [QUESTION]}), ("/v1/chat/completions", {"messages": [QUESTION]})],
)
def test_answers_to_compare_become_messages(mock: MockProvider, path: str, body: dict[str, Any]) -> None:
    reply = make_client(mock).post(path, json={**body, "metadata": {**PAIR, "principle": "Be brief."}})
    assert reply.status_code == 200 and "score_1" in reply.text
    sent = mock.last_body
    assert "metadata" not in sent
    assert sent["messages"] == [
        QUESTION,
        {"role": "principle", "content": "Be brief."},
        {"role": "response_1", "content": "Not much."},
        {"role": "response_2", "content": "The sky."},
    ]


def test_without_a_principle_there_is_none(mock: MockProvider) -> None:
    client = make_client(mock, supports_principle_role=False)
    assert client.post("/v1/responses", json={"input": [QUESTION], "metadata": PAIR}).status_code == 200
    assert [message["role"] for message in mock.last_body["messages"]] == ["user", "response_1", "response_2"]
    assert client.post("/v1/responses", json={"input": [QUESTION]}).status_code == 200
    assert mock.last_body["messages"] == [QUESTION]


def test_a_principle_the_template_does_not_know_is_refused(mock: MockProvider) -> None:
    client = make_client(mock, supports_principle_role=False)
    reply = client.post("/v1/responses", json={"input": [QUESTION], "metadata": {**PAIR, "principle": "Be brief."}})
    assert reply.status_code == 400 and "supports_principle_role" in reply.json()["detail"]
    assert mock.count == 0


def test_shipped_config() -> None:
    config: Any = OmegaConf.merge(OmegaConf.load(COMPONENT / "configs/genrm_model.yaml"), {"genrm_model_name": "m"})
    block: Any = OmegaConf.to_container(config.genrm_model.responses_api_models.genrm_model, resolve=True)
    parsed = GenRMModelConfig.model_validate({**SEAT, **block})
    assert (parsed.model, parsed.supports_principle_role, parsed.base_url) == ("m", True, [])
