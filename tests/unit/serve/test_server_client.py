from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from omegaconf import OmegaConf

from nemo_gym import server_utils
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.handover import CONFIG_DICT_ENV, CONFIG_FILE_ENV
from nemo_gym.rollout_correlation import rollout_context
from nemo_gym.serve.retries import IDEMPOTENCY_HEADER
from nemo_gym.server_utils import BaseServerConfig, ServerClient, get_server_url, setup_server_client
from tests.unit.serve.toys import client_of, config_of, free_socket, serving, toy_resources

Call = tuple[str, str, dict[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Call]]:
    """What reaches `server_utils.request`."""
    made: list[Call] = []

    async def request(method: str, url: str, **options: Any) -> str:
        made.append((method, url, options))
        return "reply"

    monkeypatch.setattr(server_utils, "request", request)
    yield made


@pytest.fixture
def no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CONFIG_DICT_ENV, CONFIG_FILE_ENV):
        monkeypatch.delenv(name, raising=False)


def three_servers(**extra: Any) -> ServerClient:
    servers = (
        ("model", "responses_api_models", 1),
        ("res", "resources_servers", 2),
        ("agent", "responses_api_agents", 3),
    )
    return client_of(config_of(*servers, **extra))


async def test_names_become_addresses(calls: list[Call]) -> None:
    client = three_servers()
    assert await client.post("res", "/tool", json={"a": 1}) == "reply"  # type: ignore[comparison-overlap]
    await client.get(server_name="model", url_path="/v1/models")
    await client.request(server_name="agent", url_path="/run", method="POST")
    assert [(method, url) for method, url, _ in calls] == [
        ("POST", "http://127.0.0.1:2/tool"),
        ("GET", "http://127.0.0.1:1/v1/models"),
        ("POST", "http://127.0.0.1:3/run"),
    ]
    key = calls[0][2].pop("headers")
    assert list(key) == [IDEMPOTENCY_HEADER]
    assert calls[0][2] == {"json": {"a": 1}, "_internal": True, "_server_name": "res"}


async def test_addresses_are_resolved_once_and_can_be_set(calls: list[Call]) -> None:
    client = three_servers()
    assert client._resolve_base_url("res") == client.base_url("res") == "http://127.0.0.1:2"
    client.global_config_dict.res.resources_servers.toy.port = 9
    assert client.base_url("res") == "http://127.0.0.1:2"
    client._server_base_urls["elsewhere"] = "http://10.0.0.1:5"
    await client.post("elsewhere", "/x")
    assert calls[0][1] == "http://10.0.0.1:5/x"


def test_interpolated_addresses_are_resolved() -> None:
    config = config_of(("res", "resources_servers", 2), port=77)
    config.res.resources_servers.toy.port = "${port}"
    assert client_of(config).base_url("res") == "http://127.0.0.1:77"


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"no server `modle`.* Did you mean `model`"):
        three_servers().base_url("modle")


def test_builds_addresses_from_objects() -> None:
    config = BaseServerConfig(host="h", port=5)
    assert three_servers()._build_server_base_url(config) == "http://h:5"


async def test_a_harness_can_have_its_model_elsewhere(calls: list[Call], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_NAME", "model")
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_BASE_URL", "http://proxy:1/ng-rollout/x")
    await three_servers().post("model", "/v1/responses")
    await three_servers().post("res", "/x")
    assert [url for _, url, _ in calls] == ["http://proxy:1/ng-rollout/x/v1/responses", "http://127.0.0.1:2/x"]


INDEXED = {"_ng_task_index": 4, "_ng_rollout_index": 2}
PREFIXED = [
    ("model", "/v1/responses", None, "c", "/ng-rollout/c/v1/responses"),
    ("model", "/v1/chat/completions?x=1", None, "c", "/ng-rollout/c/v1/chat/completions?x=1"),
    ("model", "/v1/messages", None, "c", "/ng-rollout/c/v1/messages"),
    ("model", "/v1/responses", None, None, "/v1/responses"),
    ("model", "/tokenize", None, "c", "/tokenize"),
    ("model", "/ng-rollout/d/v1/responses", None, "c", "/ng-rollout/d/v1/responses"),
    ("agent", "/v1/responses", None, "c", "/v1/responses"),
    ("res", "/verify", INDEXED, "c", "/ng-rollout/c/verify"),
    ("res", "/verify", INDEXED, None, "/ng-rollout/4-2/verify"),
    ("res", "/verify", {}, None, "/verify"),
    ("res", "/tool", INDEXED, "c", "/tool"),
]


@pytest.mark.parametrize(("name", "path", "body", "context", "sent"), PREFIXED)
async def test_observed_calls_carry_their_rollout(
    calls: list[Call], name: str, path: str, body: Any, context: str | None, sent: str
) -> None:
    with rollout_context(context):
        await three_servers(observability_enabled=True).post(name, path, json=body)
        await three_servers().post(name, path, json=body)
    assert [url.split("/", 3)[3] for _, url, _ in calls] == [sent[1:], path[1:]]


async def test_polling(no_config: None) -> None:
    server = toy_resources()
    with free_socket() as silent:
        async with serving(server.setup_webserver()) as port:
            config = config_of(
                ("up", "resources_servers", port), ("slow", "resources_servers", silent.getsockname()[1])
            )
            client = client_of(config)
            client.head_server_config.port = port
            assert await asyncio.to_thread(client.poll_for_status, "up") == "success"
            assert await asyncio.to_thread(client.poll_for_status, "head_server") == "success"
            assert await asyncio.to_thread(client.poll_for_status, "slow", timeout_seconds=0.05) == "timeout"
        assert await asyncio.to_thread(client.poll_for_status, "up") == "connection_error"


def test_a_child_takes_the_config_it_was_given(
    no_config: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**OmegaConf.to_container(config_of(("res", "resources_servers", 5))), "head_server": HEAD}  # type: ignore[dict-item]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    monkeypatch.setenv(CONFIG_FILE_ENV, str(path))
    monkeypatch.setattr("nemo_gym.global_config._GLOBAL_CONFIG_DICT", None)
    client = ServerClient.load_from_global_config()
    assert client.base_url("res") == "http://127.0.0.1:5"
    assert client.head_server_config == BaseServerConfig(**HEAD)
    assert get_server_url("res") == "http://127.0.0.1:5"


HEAD: dict[str, Any] = {"host": "127.0.0.1", "port": 11000}


def test_no_head_server_is_one_clear_sentence(no_config: None) -> None:
    with free_socket() as sock:
        port = sock.getsockname()[1]
    with pytest.raises(ValueError, match=rf"No head server answers at http://127.0.0.1:{port}/global_config_dict_yaml"):
        ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=port))
    with pytest.raises(ValueError):
        setup_server_client(BaseServerConfig(host="127.0.0.1", port=port))


def test_a_specd_mock_is_a_client() -> None:
    mock = MagicMock(spec=ServerClient)
    assert isinstance(mock, ServerClient)
    for name in ("post", "get", "request", "poll_for_status", "_build_server_base_url", "_resolve_base_url"):
        assert callable(getattr(mock, name))
    with pytest.raises(AttributeError):
        _ = mock.global_config_dict
    mock.global_config_dict = {}
