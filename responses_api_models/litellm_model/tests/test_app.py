from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from aiohttp import ClientResponseError
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.config.errors import ConfigError
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from responses_api_models.litellm_model import readiness
from responses_api_models.litellm_model.app import LiteLLMModelServer, LiteLLMModelServerConfig
from tests.mock_provider import Fault, MockProvider, Reply
from tests.ports import free_port

COMPONENT = Path(__file__).parents[1]
READINESS = "/health/readiness/details"
QUESTION = {"role": "user", "content": "What is up?"}
SEAT = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.")) as provider:
        provider.pages[READINESS] = {"status": "healthy", "litellm_version": "1.83.0"}
        yield provider


def make_server(base_url: str, **config: Any) -> LiteLLMModelServer:
    fields = {"openai_base_url": base_url, "openai_api_key": "sk-sesame", "openai_model": "forced"}
    return LiteLLMModelServer(
        config=LiteLLMModelServerConfig.model_validate({**SEAT, **fields, **config}),
        server_client=MagicMock(spec=ServerClient),
    )


def make_client(mock: MockProvider, **config: Any) -> TestClient:
    server = make_server(mock.base_url, **config)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app)


def respond(mock: MockProvider, **fields: Any) -> dict[str, Any]:
    """What a caller gets when the proxy answers with `fields`."""
    whole = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "parallel_tool_calls": True}
    mock.play(Reply(raw={**whole, "tool_choice": "auto", "tools": [], **fields}))
    reply = make_client(mock).post("/v1/responses", json={"input": [QUESTION]})
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


# --- the proxy --------------------------------------------------------------------------------------------------------


def test_a_ready_proxy_is_used(mock: MockProvider, capsys: pytest.CaptureFixture[str]) -> None:
    answer = make_client(mock).post("/v1/responses", json={"input": [QUESTION]}).json()
    assert answer["output"][0]["content"][0]["text"] == "Not much."
    first, asked = mock.requests
    assert (first.path, first.headers["authorization"]) == (READINESS, "Bearer sk-sesame")
    assert (asked.path, asked.body) == ("/v1/responses", {"input": [QUESTION], "model": "forced"})
    assert "LiteLLM 1.83.0" in capsys.readouterr().out


def test_chat_passes_through(mock: MockProvider) -> None:
    answer = make_client(mock).post("/v1/chat/completions", json={"messages": [QUESTION]}).json()
    assert answer["choices"][0]["message"]["content"] == "Not much."


@pytest.mark.parametrize("version", ["1.83.0", "1.90.3", "2.0.0", "v1.83.0"])
def test_versions_that_are_fine(version: str) -> None:
    readiness.check_version(version)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("1.82.9", "too old"),
        ("0.99.99", "too old"),
        ("1.82.7", "attacker"),
        ("1.82.8", "attacker"),
        ("1.83.0-nightly", "no plain release"),
        ("1.83.0.post1", "no plain release"),
        ("1.83", "no plain release"),
    ],
)
def test_versions_that_are_refused(mock: MockProvider, version: str, reason: str) -> None:
    mock.pages[READINESS] = {"litellm_version": version}
    with pytest.raises(ConfigError, match=reason):
        make_client(mock)


@pytest.mark.parametrize(("page", "reason"), [({}, "litellm_version"), ([], "JSON object")])
def test_what_is_no_proxy_is_refused(mock: MockProvider, page: Any, reason: str) -> None:
    mock.pages[READINESS] = page
    with pytest.raises(ConfigError, match=reason):
        make_client(mock)


def test_an_absent_proxy_is_refused(mock: MockProvider) -> None:
    del mock.pages[READINESS]
    with pytest.raises(ConfigError, match="answered 404"):
        make_client(mock)
    with pytest.raises(ConfigError, match="can't be reached"):
        make_server(f"http://127.0.0.1:{free_port()}/v1").setup_webserver()


# --- repairs ----------------------------------------------------------------------------------------------------------


def test_no_effort_is_null(mock: MockProvider) -> None:
    assert respond(mock, reasoning={"effort": "none", "summary": None})["reasoning"]["effort"] is None
    assert respond(mock, reasoning={"effort": "low"})["reasoning"]["effort"] == "low"


@pytest.mark.parametrize(
    ("usage", "details"),
    [
        ({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}, (None, None)),
        ({"input_tokens": 3, "output_tokens": 2, "input_tokens_details": None}, (None, None)),
        ({"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}, (1, None)),
        ({"input_tokens": 3, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}}, (None, 1)),
    ],
)
def test_usage_without_details(mock: MockProvider, usage: dict[str, Any], details: tuple[Any, Any]) -> None:
    found = respond(mock, usage=usage)["usage"]
    assert (found["input_tokens"], found["output_tokens"], found["total_tokens"]) == (3, 2, 5)
    cached, reasoning = found["input_tokens_details"], found["output_tokens_details"]
    assert (cached["cached_tokens"], reasoning["reasoning_tokens"]) == details


def test_output_text_in_reasoning(mock: MockProvider) -> None:
    part = {"type": "output_text", "text": "hm", "annotations": []}
    item = {"id": "rs", "type": "reasoning", "role": "assistant", "status": "completed", "content": [part]}
    (found,) = respond(mock, output=[item])["output"]
    assert [(p["type"], p["text"]) for p in found["summary"]] == [("summary_text", "hm")] and not found["content"]
    kept = {**item, "summary": [{"type": "summary_text", "text": "short"}], "content": [{**part}]}
    (found,) = respond(mock, output=[kept])["output"]
    assert [p["text"] for p in found["summary"]] == ["short"]


def test_a_chat_completion_for_an_answer(mock: MockProvider) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}
    mock.play(Reply(raw={"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}))
    answer = make_client(mock).post("/v1/responses", json={"input": "hi"}).json()
    assert (answer["object"], answer["output"][0]["content"][0]["text"]) == ("response", "Hi.")


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_errors_hold_no_key_and_no_cookie(mock: MockProvider, caplog: pytest.LogCaptureFixture) -> None:
    said = 'sent {"authorization": "Bearer sk-sesame", "cookie": "session=crumb"}\nset-cookie: crumb2; key sk-sesame'
    mock.play(Reply(fault=Fault(status=400, message=said)))
    reply = make_client(mock).post("/v1/responses", json={"input": "hi"})
    assert reply.status_code == 500 and "answered 400" in reply.json()
    for secret in ("sesame", "crumb"):
        assert secret not in reply.text and secret not in caplog.text

    with pytest.raises(ClientResponseError) as caught:
        await make_server(mock.base_url).responses(NeMoGymResponseCreateParamsNonStreaming(input="hi"))
    assert b"sesame" not in pickle.dumps(caught.value) and "sesame" not in repr(caught.value.request_info)


def test_shipped_config() -> None:
    policy = {"policy_base_url": "http://x/v1", "policy_api_key": "k", "policy_model_name": "m"}
    config: Any = OmegaConf.merge(OmegaConf.load(COMPONENT / "configs" / "litellm_model.yaml"), policy)
    block: Any = OmegaConf.to_container(config.policy_model.responses_api_models.litellm_model, resolve=True)
    assert LiteLLMModelServerConfig.model_validate({**SEAT, **block}).openai_model == "m"
