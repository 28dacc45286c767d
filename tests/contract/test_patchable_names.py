"""Every name that tests of 0.7's components replace is looked up where they replace it, when it is used."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym import (
    base_resources_server,
    base_responses_api_agent,
    chat_streaming,
    openai_utils,
    responses_converter,
    responses_streaming,
    rollout_collection,
    server_utils,
)
from nemo_gym.anthropic_converter import AnthropicConverter
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
from nemo_gym.config_types import BaseServerConfig, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.sandbox import agent_tools
from nemo_gym.sandbox.providers.apptainer import ApptainerProvider
from nemo_gym.sandbox.providers.apptainer import provider as apptainer
from nemo_gym.server_utils import ServerClient, SimpleServer, get_server_url
from nemo_gym.telemetry import connection_pool
from tests.unit.serve.test_agent import agent_of
from tests.unit.serve.test_model import ASK_CHAT, CHAT, MESSAGE, MESSAGES
from tests.unit.serve.toys import RESPONSE, ROW, ToyResources, config_of, mock_client, resources_config

REPOSITORY = Path(__file__).parents[2]

STRING_TARGETS = (
    "nemo_gym.responses_converter.uuid4",
    "nemo_gym.openai_utils.NeMoGymAsyncOpenAI.create_chat_completion",
    "nemo_gym.sandbox.agent_tools.get_server_url",
    "nemo_gym.global_config",
    "nemo_gym.sandbox.agent_tools.sandbox_server_url",
    "nemo_gym.base_responses_api_model._orjson_dispatch_response",
)
OBJECT_TARGETS = (
    "nemo_gym.base_responses_api_agent.get_first_server_config_dict",
    "nemo_gym.server_utils.get_global_config_dict",
    "nemo_gym.rollout_collection.get_global_config_dict",
    "nemo_gym.rollout_collection.setup_server_client_utils",
    "nemo_gym.server_utils.is_nemo_gym_fastapi_entrypoint",
    "nemo_gym.server_utils.SimpleServer.run_webserver",
    "nemo_gym.anthropic_converter.AnthropicConverter.responses_to_anthropic_response",
    "nemo_gym.rollout_collection.RolloutCollectionHelper.run_from_config",
    "nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY",
    "nemo_gym.anthropic_converter.AnthropicConverter._sse_event",
    "nemo_gym.base_resources_server.SimpleResourcesServer.setup_webserver",
    "nemo_gym.chat_streaming._sse_data",
    "nemo_gym.openai_utils.request",
    "nemo_gym.openai_utils.NeMoGymResponse.model_dump",
    "nemo_gym.responses_streaming._sse_event",
    "nemo_gym.rollout_collection.RolloutCollectionHelper",
    "nemo_gym.sandbox.providers.apptainer.provider._require_apptainer",
    "nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT",
    "nemo_gym.server_utils.get_global_aiohttp_client",
)

_Test = TypeVar("_Test", bound=Callable[..., Any])
_covered: set[str] = set()


def replaces(*targets: str) -> Callable[[_Test], _Test]:
    """Marks which names a test shows to be replaceable."""
    _covered.update(targets)
    return lambda test: test


@pytest.fixture(autouse=True)
def own_http_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test puts in place of the shared HTTP client is gone afterwards."""
    for name in ("_GLOBAL_AIOHTTP_CLIENT", "_GLOBAL_AIOHTTP_CLIENT_SETTINGS", "_GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY"):
        monkeypatch.setattr(server_utils, name, None)
    yield


def response(**changes: Any) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate({**RESPONSE, "output": [MESSAGE], **changes})


def answer(body: Any) -> Any:
    return MagicMock(ok=True, status=200, headers={}, read=AsyncMock(return_value=orjson.dumps(body)))


class Model(SimpleResponsesAPIModel):
    async def responses(self, request: Request, body: Any = None) -> NeMoGymResponse:  # type: ignore[override]
        return response()

    async def chat_completions(self, body: Any = None) -> NeMoGymChatCompletion:
        return NeMoGymChatCompletion.model_validate(CHAT)


def model_app() -> TestClient:
    config = BaseResponsesAPIModelConfig(host="127.0.0.1", port=1, entrypoint="", name="model")
    server = Model(config=config, server_client=mock_client(OmegaConf.create({})))
    return TestClient(server.setup_webserver())


# --- 3.1 -------------------------------------------------------------------------------------------------------------


@replaces("nemo_gym.responses_converter.uuid4")
def test_ids_of_generated_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_converter, "uuid4", lambda: SimpleNamespace(hex="123"))
    completion = NeMoGymChatCompletion.model_validate(CHAT)
    params = openai_utils.NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": "hi"})
    converted = ResponsesConverter(return_token_id_information=False).chat_completion_to_response(params, completion)
    assert (converted.id, converted.model_dump()["output"][0]["id"]) == ("resp_123", "msg_123")


@replaces("nemo_gym.openai_utils.NeMoGymAsyncOpenAI.create_chat_completion")
async def test_chat_calls_of_the_backend_client(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backend(NeMoGymAsyncOpenAI):
        """As components derive it."""

    monkeypatch.setattr(
        "nemo_gym.openai_utils.NeMoGymAsyncOpenAI.create_chat_completion", AsyncMock(return_value={"a": 1})
    )
    assert await Backend(base_url="http://x", api_key="k").create_chat_completion(messages=[]) == {"a": 1}


@replaces("nemo_gym.sandbox.agent_tools.get_server_url")
def test_addresses_of_servers_for_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.sandbox.agent_tools.get_server_url", lambda name: f"http://0.0.0.0:1/{name}")
    assert agent_tools.sandbox_server_url("s") == "http://127.0.0.1:1/s"


@replaces("nemo_gym.sandbox.agent_tools.sandbox_server_url")
async def test_addresses_of_tools_for_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.sandbox.agent_tools.sandbox_server_url", lambda name, **_: f"http://patched/{name}")
    client = mock_client()
    client.post = AsyncMock(
        return_value=answer({"mcp": {"server_name": "t", "url_path": "/mcp", "headers": {"h": "1"}}})
    )
    body = base_resources_server.BaseRunRequest.model_validate(ROW)
    servers = [ResourcesServerRef(type="resources_servers", name="t")]
    entries = await agent_tools.seed_mcp_servers(client, servers, body, {}, timeout_s=1)
    assert entries["t"]["url"] == "http://patched/t/mcp"


@replaces("nemo_gym.global_config")
def test_the_whole_module_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create({"patched": True})
    fake: Any = SimpleNamespace(get_global_config_dict=lambda: config)
    monkeypatch.setitem(sys.modules, "nemo_gym.global_config", fake)
    assert rollout_collection.get_global_config_dict() is config
    assert importlib.import_module("nemo_gym.global_config") is fake


@replaces("nemo_gym.base_responses_api_model._orjson_dispatch_response")
@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/responses", {"input": "hi"}), ("/v1/chat/completions", ASK_CHAT), ("/v1/messages", MESSAGES)],
)
def test_encoding_of_answers(monkeypatch: pytest.MonkeyPatch, path: str, body: Any) -> None:
    patched = MagicMock(return_value=Response(b"patched"))
    monkeypatch.setattr("nemo_gym.base_responses_api_model._orjson_dispatch_response", patched)
    assert model_app().post(path, json=body).text == "patched"


# --- 3.2 -------------------------------------------------------------------------------------------------------------


@replaces("nemo_gym.base_responses_api_agent.get_first_server_config_dict")
def test_where_an_agent_finds_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    block = OmegaConf.create({"host": "patched", "port": 7})
    monkeypatch.setattr(base_responses_api_agent, "get_first_server_config_dict", lambda config, name: block)
    agent = agent_of(config=OmegaConf.create({}))
    agent.server_client._build_server_base_url = lambda block: f"http://{block.host}:{block.port}"
    assert agent.resolve_model_base_url("policy_model") == "http://patched:7/v1"


@replaces("nemo_gym.server_utils.get_global_config_dict")
def test_the_config_that_servers_are_found_in(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(("s", "resources_servers", 5), head_server={"host": "h", "port": 9})
    monkeypatch.setattr(server_utils, "get_global_config_dict", lambda: config)
    assert get_server_url("s") == "http://127.0.0.1:5"
    assert ServerClient.load_head_server_config().host == "h"


@replaces("nemo_gym.rollout_collection.get_global_config_dict")
def test_the_config_of_a_client_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create({"patched": True})
    monkeypatch.setattr(rollout_collection, "get_global_config_dict", lambda: config)
    assert rollout_collection._servers(mock_client()).global_config is config


@replaces("nemo_gym.rollout_collection.setup_server_client_utils")
def test_the_client_of_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = MagicMock()
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", patched)
    head = BaseServerConfig(host="h", port=1)
    assert RolloutCollectionHelper().setup_server_client(head) is patched.return_value
    patched.assert_called_once_with(head)


@replaces("nemo_gym.server_utils.is_nemo_gym_fastapi_entrypoint", "nemo_gym.server_utils.SimpleServer.run_webserver")
@pytest.mark.parametrize("kind", ["legacy_agent", "single_agent_turn", "single_agent_turn_legacy"])
def test_environment_servers_as_entrypoints_of_workers(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    app, path = FastAPI(), str(REPOSITORY / "environment_servers" / kind / "app.py")
    monkeypatch.setattr(server_utils, "is_nemo_gym_fastapi_entrypoint", lambda file: file == path)
    monkeypatch.setattr(SimpleServer, "run_webserver", classmethod(lambda cls: app))
    assert runpy.run_path(path)["app"] is app
    monkeypatch.setattr(server_utils, "is_nemo_gym_fastapi_entrypoint", lambda file: False)
    assert "app" not in runpy.run_path(path)


@replaces("nemo_gym.anthropic_converter.AnthropicConverter.responses_to_anthropic_response")
def test_answers_for_messages_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    def patched(self: Any, response: Any, model: str) -> dict[str, Any]:
        return {"patched": model}

    monkeypatch.setattr(AnthropicConverter, "responses_to_anthropic_response", patched)
    assert model_app().post("/v1/messages", json=MESSAGES).json() == {"patched": "claude"}


@replaces("nemo_gym.anthropic_converter.AnthropicConverter._sse_event")
def test_frames_for_messages_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnthropicConverter, "_sse_event", lambda self, event_type, data: f"<{event_type}>")
    text = model_app().post("/v1/messages", json={**MESSAGES, "stream": True}).text
    assert text.startswith("<message_start>")
    assert text.endswith("<message_stop>")


@replaces("nemo_gym.chat_streaming._sse_data")
def test_frames_for_chat_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_streaming, "_sse_data", lambda payload: "<chunk>")
    text = model_app().post("/v1/chat/completions", json={**ASK_CHAT, "stream": True}).text
    assert text.replace("<chunk>", "") == "data: [DONE]\n\n"
    assert text.startswith("<chunk>")


@replaces("nemo_gym.responses_streaming._sse_event")
def test_frames_for_responses_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_streaming, "_sse_event", lambda payload: f"<{payload['type']}>")
    text = model_app().post("/v1/responses", json={"input": "hi", "stream": True}).text
    assert text.startswith("<response.created>")


@replaces(
    "nemo_gym.rollout_collection.RolloutCollectionHelper.run_from_config",
    "nemo_gym.rollout_collection.RolloutCollectionHelper",
)
async def test_the_helper_that_a_run_is_collected_by(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RolloutCollectionConfig.model_validate(
        {"agent_name": "a", "input_jsonl_fpath": "in.jsonl", "output_jsonl_fpath": "out.jsonl"}
    )
    run = AsyncMock(return_value=["patched"])
    monkeypatch.setattr(RolloutCollectionHelper, "run_from_config", run)
    assert await rollout_collection._collection(config, None) == ["patched"]
    run.assert_awaited_once_with(config)
    helper = MagicMock()
    helper.return_value.run_from_config = AsyncMock(return_value=["of another helper"])
    monkeypatch.setattr(rollout_collection, "RolloutCollectionHelper", helper)
    assert await rollout_collection._collection(config, None) == ["of another helper"]


@replaces(
    "nemo_gym.server_utils.get_global_aiohttp_client", "nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY"
)
async def test_the_http_client_and_the_watch_over_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    async def request(method: str, url: str, **options: Any) -> Any:
        names.append(connection_pool._SERVER_NAME.get())
        return answer({})

    monkeypatch.setattr(server_utils, "get_global_aiohttp_client", lambda: SimpleNamespace(request=request))
    await server_utils.request("GET", "http://x", _server_name="tools")
    monkeypatch.setattr(server_utils, "_GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY", object())
    await server_utils.request("GET", "http://x", _server_name="tools")
    assert names == ["external", "tools"]


@replaces("nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT")
async def test_the_shared_http_client(monkeypatch: pytest.MonkeyPatch) -> None:
    client = MagicMock(closed=False)
    monkeypatch.setattr(server_utils, "_GLOBAL_AIOHTTP_CLIENT", client)
    assert server_utils.get_global_aiohttp_client() is client
    assert server_utils.is_global_aiohttp_client_setup()


@replaces("nemo_gym.base_resources_server.SimpleResourcesServer.setup_webserver")
def test_the_app_that_a_resources_server_builds_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(ToyResources):
        def setup_webserver(self) -> FastAPI:
            return super().setup_webserver()

    app = FastAPI()
    monkeypatch.setattr(base_resources_server.SimpleResourcesServer, "setup_webserver", lambda self: app)
    assert Own(config=resources_config(), server_client=mock_client()).setup_webserver() is app


@replaces("nemo_gym.openai_utils.request")
async def test_what_the_backend_client_sends_with(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Any] = {}

    async def request(**options: Any) -> Any:
        sent.update(options)
        return answer({"patched": True})

    monkeypatch.setattr(openai_utils, "request", request)
    backend = NeMoGymAsyncOpenAI(base_url="http://x/v1", api_key="k")
    assert await backend.create_response(input="hi") == {"patched": True}
    assert sent["url"] == "http://x/v1/responses"


@replaces("nemo_gym.openai_utils.NeMoGymResponse.model_dump")
async def test_how_a_response_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Any] = {}

    async def send(self: Any, method: str, url: str, server_name: str, options: dict[str, Any]) -> Any:
        sent.update(options)
        return answer({})

    monkeypatch.setattr(ServerClient, "_send", send)
    monkeypatch.setattr(NeMoGymResponse, "model_dump", lambda self, **_: {"patched": True})
    config = config_of(("s", "resources_servers", 5))
    client = ServerClient(head_server_config=BaseServerConfig(host="h", port=1), global_config_dict=config)
    await client.post("s", "/verify", json=response())
    assert sent["json"] == {"patched": True}


@replaces("nemo_gym.sandbox.providers.apptainer.provider._require_apptainer")
def test_the_check_for_apptainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apptainer, "_require_apptainer", lambda *_args, **_kwargs: "/patched/apptainer")
    assert ApptainerProvider()._binary == "/patched/apptainer"


@pytest.mark.parametrize("target", [*STRING_TARGETS, *OBJECT_TARGETS])
def test_every_name_is_shown_to_be_replaceable(target: str) -> None:
    assert target in _covered


def test_no_test_claims_another_name() -> None:
    assert _covered == {*STRING_TARGETS, *OBJECT_TARGETS}
