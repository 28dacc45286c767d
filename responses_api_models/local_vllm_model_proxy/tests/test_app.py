from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from responses_api_models.local_vllm_model_proxy import app as module
from responses_api_models.local_vllm_model_proxy.app import LocalVLLMModelProxy, LocalVLLMModelProxyConfig
from tests.mock_provider import MockProvider, Reply

COMPONENT = Path(__file__).parents[1]
CHAT = "/v1/chat/completions"
INNER = "/get_inner_vllm_config"
SEAT = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "judge_model"}


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    """The engine, and the server that started it."""
    with MockProvider(Reply(text="Not much.")) as provider:
        provider.pages["/"] = {}
        provider.pages[INNER] = {"base_url": [provider.base_url], "api_key": "sesame", "model": "org/model"}
        yield provider


def make_server(port: int, **config: Any) -> LocalVLLMModelProxy:
    switches = {"return_token_id_information": False, "uses_reasoning_parser": False}
    reference = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
    block = {"responses_api_models": {"local_vllm_model": {"host": "127.0.0.1", "port": port}}}
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=11000),
        global_config_dict=OmegaConf.create({"policy_model": block}),
    )
    return LocalVLLMModelProxy(
        config=LocalVLLMModelProxyConfig.model_validate({**SEAT, **switches, **reference, **config}),
        server_client=client,
    )


@pytest.mark.parametrize("single", [False, True])
def test_the_engine_is_shared_under_other_settings(mock: MockProvider, single: bool) -> None:
    if single:
        mock.pages[INNER] = {**mock.pages[INNER], "base_url": mock.base_url}
    server = make_server(mock.port, sampling_overrides={"temperature": 0})
    client = TestClient(server.setup_webserver())
    answer = client.post("/v1/responses", json={"input": "hi"}).json()
    assert answer["output"][0]["content"][0]["text"] == "Not much."
    sent = mock.requests[-1]
    assert (sent.path, sent.headers["authorization"]) == (CHAT, "Bearer sesame")
    assert (sent.body["model"], sent.body["temperature"]) == ("org/model", 0)


def test_the_other_server_is_waited_for(
    mock: MockProvider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    inner = mock.pages[INNER]
    asked: list[str] = []

    def poll(self: ServerClient, name: str) -> str:
        """Not healthy yet, then healthy without its engine, then with it."""
        asked.append(name)
        mock.pages.pop(INNER, None)
        if len(asked) != 2:
            mock.pages[INNER] = inner
        return "timeout" if len(asked) == 1 else "success"

    monkeypatch.setattr(ServerClient, "poll_for_status", poll)
    server = make_server(mock.port)
    server.setup_webserver()
    assert asked == ["policy_model"] * 3 and server.config.base_url == [mock.base_url]
    assert capsys.readouterr().out.count("Waiting for policy_model") == 2


def test_shipped_config() -> None:
    config: Any = OmegaConf.load(COMPONENT / "configs" / "local_vllm_model_proxy.yaml")
    block: Any = OmegaConf.to_container(config.judge_model.responses_api_models.local_vllm_model_proxy)
    assert LocalVLLMModelProxyConfig.model_validate({**SEAT, **block}).model_server.name == "policy_model"
