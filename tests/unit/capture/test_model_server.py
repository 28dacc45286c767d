from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from nemo_gym.base_responses_api_model import (
    BaseResponsesAPIModelConfig,
    Body,
    CaptureStore,
    SimpleResponsesAPIModel,
    read_model_call_records,
    start_model_execution,
)
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from tests.unit.serve.test_model import CHAT, MESSAGE, MESSAGES
from tests.unit.serve.toys import RESPONSE, mock_client

USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
DETAILS = {"input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 2}}


class Model(SimpleResponsesAPIModel):
    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        return NeMoGymChatCompletion.model_validate(CHAT)

    async def responses(  # type: ignore[override]
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        outcome = start_model_execution(request, upstream_attempted=True)
        outcome["response_source"], outcome["upstream_status_code"] = "upstream", 200
        return NeMoGymResponse.model_validate({**RESPONSE, "output": [MESSAGE], "usage": {**USAGE, **DETAILS}})


def client(tmp_path: Path, **config: Any) -> TestClient:
    settings = BaseResponsesAPIModelConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="policy_model")
    observed = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path), **config}
    server = Model(config=settings, server_client=mock_client(observed))
    return TestClient(server.setup_webserver(), base_url="http://127.0.0.1:1")


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("responses", "/v1/responses", {"input": "hi"}),
    ("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("messages", "/v1/messages", MESSAGES),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("dialect", "path", "body"), CALLS)
def test_every_dialect_is_captured_streamed_or_not(
    tmp_path: Path, dialect: str, path: str, body: dict[str, Any], stream: bool
) -> None:
    answer = client(tmp_path).post(f"/ng-rollout/3-1{path}", json={**body, "stream": True} if stream else body)
    assert answer.status_code == 200
    (call,) = read_model_call_records(CaptureStore(tmp_path), "3-1")
    assert (call.dialect, call.status_code, call.error_category) == (dialect, 200, None)
    assert call.model_ref is not None and call.model_ref.name == "policy_model"
    assert "hello" in str(call.response) and call.request is not None
    assert (call.response_raw is not None) is stream
    if dialect != "chat":
        assert (call.tokens_in, call.tokens_out) == (3, 4)
        assert (call.upstream_attempted, call.response_source, call.upstream_status_code) == (True, "upstream", 200)


def test_bodies_that_are_refused_are_captured_as_the_client_s_errors(tmp_path: Path) -> None:
    assert client(tmp_path).post("/ng-rollout/3-1/v1/responses", json={"input": 5}).status_code == 422
    (call,) = read_model_call_records(CaptureStore(tmp_path), "3-1")
    assert call.error_category == "client_error" and call.response is not None


def test_without_observability_the_prefix_works_and_nothing_is_kept(tmp_path: Path) -> None:
    quiet = client(tmp_path, observability_enabled=False)
    assert quiet.post("/ng-rollout/3-1/v1/responses", json={"input": "hi"}).status_code == 200
    assert list(tmp_path.iterdir()) == []


def test_secrets_of_the_run_are_not_in_the_file(tmp_path: Path) -> None:
    model = client(tmp_path, policy_api_key="sk-12345678abc")
    model.post("/ng-rollout/3-1/v1/responses", json={"input": "my key is sk-12345678abc"})
    assert b"sk-12345678abc" not in CaptureStore(tmp_path).path_for("3-1").read_bytes()
    assert b"my key is ****" in CaptureStore(tmp_path).path_for("3-1").read_bytes()
