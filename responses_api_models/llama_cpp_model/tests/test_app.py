"""The server with an engine that is a stand-in; test_engine.py asks the real one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from starlette.types import ASGIApp

from nemo_gym.config.errors import ConfigError
from nemo_gym.server_utils import ServerClient
from responses_api_models.llama_cpp_model import app as app_module
from responses_api_models.llama_cpp_model.app import LlamaCppModel, LlamaCppModelConfig
from responses_api_models.llama_cpp_model.engine import Engine, EngineError, EngineSettings
from responses_api_models.llama_cpp_model.engine_client import ContextOverflow
from responses_api_models.llama_cpp_model.exact_tokens import ExactTokens
from responses_api_models.llama_cpp_model.weights import find_weights

COMPONENT = Path(__file__).parents[1]
CHAT = "/v1/chat/completions"
QUESTION = {"role": "user", "content": "What is up?"}


@dataclass
class FakeEngine:
    """Takes the places of Engine and EngineClient."""

    address: str = ""
    api_key: str = ""
    text: str = "Not much."
    message: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    ended: list[str] = field(default_factory=list)
    settings: EngineSettings | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    template_has_tools: bool = True

    async def shows_tools(self, tools: list[Any]) -> bool:
        return self.template_has_tools

    async def chat(self, body: dict[str, Any], *, with_tokens: bool) -> tuple[dict[str, Any], ExactTokens | None]:
        self.bodies.append(body)
        if self.error:
            raise self.error
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        choice["message"] = {"role": "assistant", "content": self.text, **self.message}
        if body.get("logprobs") or with_tokens:
            entries = [{"id": 10 + n, "token": "x", "logprob": -0.5, "top_logprobs": []} for n in range(2)]
            choice["logprobs"] = {"content": entries}
        completion = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "/a/path.gguf",
            "timings": {"a": 1},
        }
        completion |= {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, "choices": [choice]}
        return completion, ExactTokens([1, 2, 3], [10, 11], [-0.5, -0.25]) if with_tokens else None

    async def close(self) -> None:
        self.ended.append("client")

    def stop(self) -> None:
        self.ended.append("engine")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    fake = FakeEngine()

    class FakeStart:
        @staticmethod
        def start(settings: EngineSettings) -> FakeEngine:
            fake.settings = settings
            return fake

    monkeypatch.setattr(app_module, "Engine", FakeStart)
    monkeypatch.setattr(app_module, "EngineClient", lambda *arguments: fake)
    monkeypatch.setattr(app_module, "find_weights", lambda path: Path(path or "/models/tiny.gguf"))
    yield fake


def make_app(**config: Any) -> ASGIApp:
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {}
    fields = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}
    server = LlamaCppModel(config=LlamaCppModelConfig.model_validate(fields | config), server_client=client)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return app


def post(path: str, body: dict[str, Any], **config: Any) -> dict[str, Any]:
    reply = TestClient(make_app(**config)).post(path, json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def test_three_dialects(engine: FakeEngine) -> None:
    answer = post("/v1/responses", {"input": "hi", "max_output_tokens": 7})
    assert answer["output"][0]["content"][0]["text"] == "Not much."
    assert answer["model"] == "tiny" and "timings" not in answer
    assert post(CHAT, {"messages": [QUESTION]})["choices"][0]["message"]["content"] == "Not much."
    anthropic = post("/v1/messages", {"messages": [QUESTION], "model": "m", "max_tokens": 5})
    assert anthropic["content"] == [{"type": "text", "text": "Not much."}]
    assert [body["max_tokens"] for body in engine.bodies] == [7, 512, 5]


def test_what_the_engine_is_asked(engine: FakeEngine) -> None:
    request = {"model": "asked", "metadata": {"a": "b"}, "temperature": None, "top_p": 0.5, "stop": ["x"], "tools": []}
    post(CHAT, {"messages": [QUESTION], **request, "tool_choice": "auto", "max_completion_tokens": 4})
    assert engine.bodies == [
        {"messages": [QUESTION], "top_p": 0.5, "stop": ["x"], "max_tokens": 4, "cache_prompt": False, "seed": 42}
    ]


def test_settings_of_requests(engine: FakeEngine) -> None:
    post(CHAT, {"messages": [QUESTION], "seed": 7}, extra_body={"min_p": 0.1, "seed": 1}, cache_prompt=True)
    assert engine.bodies[-1] == {
        "messages": [QUESTION],
        "min_p": 0.1,
        "seed": 7,
        "max_tokens": 512,
        "cache_prompt": True,
    }
    post(CHAT, {"messages": [QUESTION]}, seed=None, default_max_output_tokens=9)
    assert "seed" not in engine.bodies[-1] and engine.bodies[-1]["max_tokens"] == 9


def test_settings_of_the_engine(engine: FakeEngine) -> None:
    make_app(model_path="/models/other.gguf", context_tokens=1024, slots=3, threads=5)
    assert engine.settings == EngineSettings(Path("/models/other.gguf"), context_tokens=1024, slots=3, threads=5)


def test_the_startup_line_says_what_it_is_for(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    make_app()
    (line,) = capsys.readouterr().out.splitlines()
    assert "tiny" in line and "demonstration" in line


def test_the_constructor_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LlamaCppModelConfig(host="h", port=1, entrypoint="app.py", name="policy_model")
    monkeypatch.setattr(app_module, "find_weights", None)
    LlamaCppModel(config=config, server_client=MagicMock(spec=ServerClient))


def test_tokens_sit_on_the_last_item(engine: FakeEngine) -> None:
    engine.text = "<think>hm</think>Yes."
    output = post("/v1/responses", {"input": "hi"}, return_token_id_information=True)["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    assert "prompt_token_ids" not in output[0]
    assert output[1]["prompt_token_ids"] == [1, 2, 3]
    assert output[1]["generation_token_ids"] == [10, 11]
    assert output[1]["generation_log_probs"] == [-0.5, -0.25]
    assert engine.bodies[-1]["top_logprobs"] == 1


def test_log_probs_stay_where_they_were_asked_for(engine: FakeEngine) -> None:
    body = {"messages": [QUESTION], "logprobs": True, "top_logprobs": 0}
    choice = post(CHAT, body, return_token_id_information=True)["choices"][0]
    assert len(choice["logprobs"]["content"]) == 2 and choice["message"]["generation_token_ids"] == [10, 11]
    assert engine.bodies[-1]["top_logprobs"] == 1
    assert post(CHAT, {"messages": [QUESTION]}, return_token_id_information=True)["choices"][0]["logprobs"] is None
    assert "prompt_token_ids" not in post(CHAT, body)["choices"][0]["message"]


def test_a_full_context_ends_the_turn(engine: FakeEngine) -> None:
    engine.error = ContextOverflow("too long")
    answer = post("/v1/responses", {"input": "hi"}, return_token_id_information=True)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    choice = post(CHAT, {"messages": [QUESTION]})["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", None)


def test_refusals_of_the_engine_are_the_callers(engine: FakeEngine) -> None:
    engine.error = HTTPException(400, "no images")
    assert TestClient(make_app()).post("/v1/responses", json={"input": "hi"}).status_code == 400


def test_tool_calls_come_back(engine: FakeEngine) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    engine.text, engine.message = "", {"tool_calls": [call]}
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    (item,) = post("/v1/responses", {"input": "hi", "tools": [tool]})["output"]
    assert (item["type"], item["name"]) == ("function_call", "look")
    assert engine.bodies[-1]["tools"][0]["function"]["name"] == "look"


def test_tools_that_the_template_leaves_out_are_told_once(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    """D31: a reward of 0 that is the model's fault alone."""
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    with TestClient(make_app()) as client:
        for has_tools, body in ((False, {}), (False, {"tools": [tool]}), (False, {"tools": [tool]})):
            engine.template_has_tools = has_tools
            assert client.post("/v1/responses", json={"input": "hi", **body}).status_code == 200
    told = [line for line in capsys.readouterr().out.splitlines() if "tools" in line]
    assert len(told) == 1 and "can't call tools: its chat template leaves them out" in told[0]
    assert re.match(r"(\(\S+\) )?Warning: ", told[0]), "`gym eval run` shows warnings of servers"
    engine.template_has_tools = True
    post("/v1/responses", {"input": "hi", "tools": [tool]})
    assert "can't call tools" not in capsys.readouterr().out


def test_the_engine_ends_with_its_server(engine: FakeEngine) -> None:
    with TestClient(make_app()):
        assert engine.ended == []
    assert engine.ended == ["client", "engine"]


def test_shipped_config() -> None:
    loaded: Any = OmegaConf.load(COMPONENT / "configs/llama_cpp_model.yaml")
    block = loaded.policy_model.responses_api_models.llama_cpp_model
    LlamaCppModelConfig.model_validate({**block, "host": "h", "port": 1, "name": "policy_model"})


# --- what can't be started --------------------------------------------------------------------------------------------

SETTINGS = EngineSettings(Path("/models/tiny.gguf"), context_tokens=256, slots=1, threads=1)


def test_weights_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"junk")
    with pytest.raises(ConfigError, match="no GGUF file"):
        find_weights(str(junk))
    with pytest.raises(ConfigError, match="model_path names"):
        find_weights(str(tmp_path / "missing.gguf"))
    with pytest.raises(ConfigError, match="model_path names"):
        find_weights("no/such/model.gguf")
    monkeypatch.setattr("pathlib.Path.open", MagicMock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(ConfigError, match="can't be read"):
        find_weights(str(junk))
    monkeypatch.setattr("responses_api_models.llama_cpp_model.weights.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="aren't installed"):
        find_weights(None)


def test_weights_by_path(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF....")
    assert find_weights(str(path)) == path


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match="needs the package xllamacpp"):
        Engine.start(SETTINGS)


def test_an_engine_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    module = MagicMock(spec=ModuleType)
    module.CommonParams = MagicMock
    module.common_reasoning_format = MagicMock()
    module.Server = MagicMock(side_effect=RuntimeError("Failed to init server"))
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    with pytest.raises(EngineError, match=r"tiny.gguf \(Failed to init server\).*memory"):
        Engine.start(SETTINGS)


def test_the_engine_is_locked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    module = MagicMock(spec=ModuleType)
    module.CommonParams = MagicMock
    module.common_reasoning_format = MagicMock()
    module.Server = MagicMock(return_value=MagicMock(listening_address="http://127.0.0.1:1"))
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    first, second = Engine.start(SETTINGS), Engine.start(SETTINGS)
    (parameters,) = module.Server.call_args.args
    assert parameters.api_keys == [second.api_key] and first.api_key != second.api_key and len(second.api_key) >= 32
    assert parameters.endpoint_slots is False and parameters.ui is False
    assert parameters.hostnames == ["127.0.0.1"] and parameters.port == 0
    assert (parameters.n_ctx, parameters.n_parallel) == (256, 1)
    assert second.api_key not in repr(second)
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
