from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.server_utils import ServerClient
from responses_api_models.local_vllm_model import engine_process
from responses_api_models.local_vllm_model.app import LocalVLLMModel, LocalVLLMModelConfig
from responses_api_models.local_vllm_model.engine_process import EngineEnded, EngineProcess
from responses_api_models.local_vllm_model.serve_command import serve_command
from responses_api_models.local_vllm_model.tests import fake_engine
from tests.mock_provider import MockProvider, Reply

COMPONENT = Path(__file__).parents[1]
SEAT = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}
SIZES = {"data_parallel_size": 1, "tensor_parallel_size": 2, "pipeline_parallel_size": 1}
PACKING = {"VLLM_RAY_DP_PACK_STRATEGY": "strict"}


def make_config(**config: Any) -> LocalVLLMModelConfig:
    fields = {"api_key": "sesame", "model": "org/model"}
    switches = {"return_token_id_information": False, "uses_reasoning_parser": False}
    engine = {"vllm_serve_kwargs": SIZES, "vllm_serve_env_vars": PACKING}
    return LocalVLLMModelConfig.model_validate({**SEAT, **fields, **switches, **engine, **config})


def make_server(global_config: dict[str, Any] | None = None, **config: Any) -> LocalVLLMModel:
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = global_config or {}
    return LocalVLLMModel(config=make_config(**config), server_client=client)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables with which the fake engine is found."""
    monkeypatch.setattr(engine_process, "POLL_SECONDS", 0.05)
    return {**PACKING, "PYTHONPATH": fake_engine.install(tmp_path / "fake")}


def ask(server: LocalVLLMModel, path: str = "/models") -> Any:
    (base_url,) = server.config.base_url
    request = urllib.request.Request(f"{base_url}{path}", headers={"Authorization": f"Bearer {server.config.api_key}"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.loads(reply.read())


# --- an engine of its own ---------------------------------------------------------------------------------------------


def test_the_engine_is_started_waited_for_and_ended(engine: dict[str, str]) -> None:
    server = make_server(
        {"ray_head_node_address": "10.0.0.1:6379"}, vllm_serve_env_vars=engine, hf_home="/models", debug=True
    )
    with TestClient(server.setup_webserver()) as client:
        found = ask(server)
        arguments = found["arguments"]
        assert arguments[:2] == ["serve", "org/model"]
        flags = dict(zip(arguments[2::2], arguments[3::2], strict=False))
        assert (flags["--host"], flags["--tensor-parallel-size"]) == ("127.0.0.1", "2")
        assert "--disable-log-stats" in arguments and "sesame" not in arguments
        assert found["variables"] == {
            "VLLM_API_KEY": "sesame",
            "HF_HOME": "/models",
            "RAY_ADDRESS": "10.0.0.1:6379",
            "VLLM_RAY_DP_PACK_STRATEGY": "strict",
            "VLLM_LOGGING_LEVEL": "DEBUG",
        }
        inner = client.get("/get_inner_vllm_config").json()
        assert inner == {"base_url": server.config.base_url, "api_key": "sesame", "model": "org/model"}
        assert [client.base_url for client in server._clients] == server.config.base_url
        process = server._engine
    assert process is not None and process._process.returncode is not None


def test_an_engine_that_fails_says_so(engine: dict[str, str]) -> None:
    with pytest.raises(EngineEnded, match="exit code 3"):
        make_server(vllm_serve_env_vars={**engine, "FAKE_EXIT": "3"}).setup_webserver()


def test_the_death_of_the_engine_is_noticed(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    died = threading.Event()
    monkeypatch.setattr(EngineProcess.__init__, "__kwdefaults__", {"on_death": died.set})
    server = make_server(vllm_serve_env_vars=engine)
    server.setup_webserver()
    server.config.base_url = [server.config.base_url[0].removesuffix("/v1")]
    ask(server, "/die")
    assert died.wait(20)
    assert "ended with exit code 7" in capfd.readouterr().out


def test_flags() -> None:
    arguments = {"a_b": 1, "on": True, "off": False, "none": None, "many": ["x", "y"], "deep": {"k": 1}}
    assert serve_command("python", "m", arguments)[3:] == [
        *("serve", "m", "--a-b", "1", "--on", "--no-off", "--many", "x", "y", "--deep", '{"k": 1}')
    ]


# --- an engine that runs already --------------------------------------------------------------------------------------


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.")) as provider:
        yield provider


def test_a_preset_address_starts_nothing(mock: MockProvider) -> None:
    server = make_server(base_url=mock.base_url, vllm_serve_kwargs={}, vllm_serve_env_vars={})
    client = TestClient(server.setup_webserver())
    answer = client.post("/v1/responses", json={"input": "hi"}).json()
    assert answer["output"][0]["content"][0]["text"] == "Not much." and server._engine is None
    assert client.get("/get_inner_vllm_config").json()["base_url"] == [mock.base_url]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"vllm_serve_kwargs": {"data_parallel_size": 1}}, "tensor_parallel_size, pipeline_parallel_size"),
        ({"vllm_serve_env_vars": {}}, "VLLM_RAY_DP_PACK_STRATEGY"),
        ({"num_workers": 2}, "num_workers"),
        ({"use_completions_api": True, "is_responses_native": True}, "exclude each other"),
    ],
)
def test_wrong_settings(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_config(**config)


@pytest.mark.parametrize("path", sorted((COMPONENT / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs(path: Path) -> None:
    config: Any = OmegaConf.merge(OmegaConf.load(path), {"policy_model_name": "m"})
    block: Any = OmegaConf.to_container(config.policy_model.responses_api_models.local_vllm_model, resolve=True)
    parsed = LocalVLLMModelConfig.model_validate({**SEAT, **block})
    assert parsed.model == ("m" if path.parent.name == "configs" else f"{path.parent.name}/{path.stem}")
