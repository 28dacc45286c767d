"""Captured calls through a model server's own routes."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from starlette.responses import JSONResponse, RedirectResponse

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.token_id_capture import (
    TokenCaptureStore,
    TokenEntry,
    current_capture_context,
    install_token_sink,
)
from nemo_gym.token_id_capture.sink import capture_health_snapshot
from tests.unit.serve.toys import RESPONSE, mock_client
from tests.unit.token_id_capture.calls import RESOLVED, ROOT, UNRESOLVED, said

PREFIX = "/ng-rollout/r/training-token-capture"


class CountingModel(SimpleResponsesAPIModel):
    """Says `turn <n>`; its tokens are those before, then 1, then 100 + n. Without `tokens` it tells none."""

    tokens: bool = True
    fails: bool = False
    history: list[int] = []
    turn: int = 0

    def _message(self) -> dict[str, Any]:
        if self.fails:
            raise HTTPException(503, "down")
        self.turn += 1
        prompt, generation = [*self.history, 1], [100 + self.turn]
        self.history = [*prompt, *generation]
        if not self.tokens:
            return {}
        return {"prompt_token_ids": prompt, "generation_token_ids": generation, "generation_log_probs": [-0.5]}

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        tokens = self._message()
        item = {**said(f"turn {self.turn}"), "id": f"m{self.turn}", "status": "completed", **tokens}
        return NeMoGymResponse.model_validate({**RESPONSE, "id": f"resp-{self.turn}", "output": [item]})

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        tokens = self._message()
        message = {"role": "assistant", "content": f"turn {self.turn}", **tokens}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return NeMoGymChatCompletion.model_validate(
            {"id": f"chat-{self.turn}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    def setup_webserver(self) -> Any:
        app = super().setup_webserver()
        app.add_route("/tokenize", lambda request: JSONResponse({}), methods=["POST"])
        app.add_route("/generate", lambda request: JSONResponse({}), methods=["POST"])
        app.add_route("/moved", lambda request: RedirectResponse("/generate"), methods=["POST"])
        app.add_route("/moved_here", lambda request: RedirectResponse("http://testserver/generate"), methods=["POST"])
        app.add_route("/moved_away", lambda request: RedirectResponse("http://other/generate"), methods=["POST"])
        return app


def model_of(root: Path, **block: Any) -> CountingModel:
    settings: dict[str, Any] = {"host": "127.0.0.1", "port": 1, "entrypoint": "", "name": "policy"}
    settings["token_id_capture_non_generating_requests"] = [{"method": "post", "path": "/tokenize"}]
    config = {"token_id_capture": {"enabled": True, "dir": str(root), **block}}
    return CountingModel(config=BaseResponsesAPIModelConfig.model_validate(settings), server_client=mock_client(config))


@pytest.fixture
def model(tmp_path: Path) -> CountingModel:
    return model_of(tmp_path)


@pytest.fixture
def client(model: CountingModel) -> TestClient:
    return TestClient(model.setup_webserver(), raise_server_exceptions=False, follow_redirects=False)


def _entries(root: Path) -> list[TokenEntry]:
    return TokenCaptureStore(root).read_entries("r")


def _incomplete(root: Path) -> bool:
    return TokenCaptureStore(root).freeze_now("r").incomplete


def _ask(client: TestClient, items: list[dict[str, Any]], **fields: Any) -> Any:
    reply = client.post(f"{PREFIX}/v1/responses", json={"input": items, **fields})
    assert reply.status_code == 200
    return reply


def test_a_conversation_is_captured_as_a_chain(client: TestClient, tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    for question in ("and?", "so?"):
        reply = _ask(client, items, instructions="be brief")
        items += [*reply.json()["output"], {"role": "user", "content": question}]
    first, second = _entries(tmp_path)
    assert (first.parent_resolution, first.response_id) == (ROOT, "resp-1")
    assert (first.prompt_token_ids, first.generation_token_ids, first.generation_log_probs) == ([1], [101], [-0.5])
    assert (second.parent_resolution, second.parent_call_id) == (RESOLVED, first.model_call_id)
    assert "generation_token_ids" not in first.output_items[0]
    assert not _incomplete(tmp_path)


def test_deltas_are_kept_where_asked_for(tmp_path: Path) -> None:
    client = TestClient(model_of(tmp_path, delta_records=True).setup_webserver())
    items: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    reply = _ask(client, items)
    _ask(client, [*items, *reply.json()["output"], {"role": "user", "content": "and?"}])
    assert [(entry.prompt_token_ids, entry.prompt_is_delta) for entry in _entries(tmp_path)] == [
        ([1], False),
        ([1], True),
    ]


def test_other_instructions_are_another_conversation(client: TestClient, tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    reply = _ask(client, items, instructions="be brief")
    _ask(client, [*items, *reply.json()["output"], {"role": "user", "content": "and?"}], instructions="be kind")
    second = _entries(tmp_path)[1]
    assert (second.parent_resolution, second.parent_resolution_reason) == (UNRESOLVED, "no_match")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hi"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/messages", {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_every_dialect_is_captured_streamed_or_not(
    client: TestClient, tmp_path: Path, path: str, body: dict[str, Any], stream: bool
) -> None:
    reply = client.post(PREFIX + path, json={**body, "stream": True} if stream else body)
    assert reply.status_code == 200
    assert "turn 1" in reply.text
    (entry,) = _entries(tmp_path)
    assert (entry.generation_token_ids, entry.parent_resolution) == ([101], ROOT)
    assert entry.output_items[-1]["content"][0]["text"] == "turn 1"
    assert not _incomplete(tmp_path)


def test_dialects_can_be_changed_between_turns(client: TestClient, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    client.post(f"{PREFIX}/v1/chat/completions", json={"messages": messages})
    _ask(client, [*messages, {"role": "assistant", "content": "turn 1"}, {"role": "user", "content": "and?"}])
    assert _entries(tmp_path)[1].parent_resolution is RESOLVED


def test_only_the_training_prefix_captures(client: TestClient, tmp_path: Path) -> None:
    assert client.post("/v1/responses", json={"input": "hi"}).status_code == 200
    assert client.post("/ng-rollout/r/v1/responses", json={"input": "hi"}).status_code == 200
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_captured_when_it_is_off(tmp_path: Path) -> None:
    client = TestClient(model_of(tmp_path, enabled=False).setup_webserver())
    assert client.post(f"{PREFIX}/v1/responses", json={"input": "hi"}).status_code == 200
    assert list(tmp_path.iterdir()) == []


def test_an_answer_without_tokens_is_a_loss_and_still_an_answer(
    model: CountingModel, client: TestClient, tmp_path: Path
) -> None:
    model.tokens = False
    before = capture_health_snapshot().get("incomplete", 0)
    _ask(client, [{"role": "user", "content": "hi"}])
    assert capture_health_snapshot()["incomplete"] > before
    assert _entries(tmp_path) == []
    assert TokenCaptureStore(tmp_path).is_incomplete("r")


def test_a_call_that_failed_is_a_loss(model: CountingModel, client: TestClient, tmp_path: Path) -> None:
    model.fails = True
    assert client.post(f"{PREFIX}/v1/responses", json={"input": "hi"}).status_code == 503
    assert _incomplete(tmp_path)


def test_a_request_that_was_refused_is_none(client: TestClient, tmp_path: Path) -> None:
    assert client.post(f"{PREFIX}/v1/responses", json={"input": 5}).status_code == 422
    assert client.get(f"{PREFIX}/v1/responses").status_code == 405
    assert not _incomplete(tmp_path)


def test_a_frozen_rollout_gets_no_more_calls(client: TestClient, tmp_path: Path) -> None:
    TokenCaptureStore(tmp_path).freeze_now("r")
    assert client.post(f"{PREFIX}/v1/responses", json={"input": "hi"}).status_code == 500
    assert _entries(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "lost"), [("/tokenize", False), ("/nowhere", False), ("/generate", True), ("/moved", True)]
)
def test_routes_that_nobody_declared_are_losses(client: TestClient, tmp_path: Path, path: str, lost: bool) -> None:
    client.post(PREFIX + path)
    assert _incomplete(tmp_path) is lost


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/moved", f"{PREFIX}/generate"),
        ("/moved_here", f"http://testserver{PREFIX}/generate"),
        ("/moved_away", "http://other/generate"),
    ],
)
def test_redirects_stay_in_the_rollout(client: TestClient, path: str, location: str) -> None:
    assert client.post(PREFIX + path).headers["location"] == location


class RefusingSink:
    """Takes no entry, and says whose rollouts are incomplete."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, str]] = []

    async def put(self, entry: TokenEntry) -> None:
        raise OSError("disk full")

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        self.lost.append((rollout_id, model_call_id))

    async def close(self) -> None: ...


def test_a_sink_that_fails_does_not_fail_the_call(tmp_path: Path) -> None:
    sink = RefusingSink()
    install_token_sink(sink)
    try:
        client = TestClient(model_of(tmp_path).setup_webserver())
        _ask(client, [{"role": "user", "content": "hi"}])
    finally:
        install_token_sink(None)
    ((rollout_id, call_id),) = sink.lost
    assert rollout_id == "r" and call_id


def test_an_installed_sink_captures_without_a_config(tmp_path: Path) -> None:
    store = TokenCaptureStore(tmp_path)
    install_token_sink(store)
    try:
        client = TestClient(model_of(tmp_path, enabled=False).setup_webserver())
        _ask(client, [{"role": "user", "content": "hi"}])
        assert len(store.read_entries("r")) == 1
    finally:
        install_token_sink(None)


def test_no_call_is_current_outside_of_requests() -> None:
    assert current_capture_context() is None


def test_the_file_that_a_trainer_reads_is_json_lines(client: TestClient, tmp_path: Path) -> None:
    _ask(client, [{"role": "user", "content": "hi"}])
    (line,) = (tmp_path / "r.tokens.jsonl").read_text().splitlines()
    assert json.loads(line)["schema_version"] == 1


def test_endpoints_are_closed_with_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    async def close(self: TokenCaptureStore) -> None:
        closed.append(self.root)

    monkeypatch.setattr(TokenCaptureStore, "close", close)
    with TestClient(model_of(tmp_path).setup_webserver()):
        assert closed == []
    assert closed == [tmp_path]


def test_external_staging_offers_the_control_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN", "secret")
    model = model_of(
        tmp_path,
        external_staging=True,
        rebuild_response=False,
        lineage_store="nemo_gym.token_id_capture.lineage:FileLineageStore",
        lineage_store_kwargs={"root": str(tmp_path)},
    )
    client = TestClient(model.setup_webserver())
    _ask(client, [{"role": "user", "content": "hi"}])
    path = "/training-token-capture/control/rollouts/r/manifest"
    assert client.get(path).status_code == 401
    manifest = client.get(path, headers={"Authorization": "Bearer secret"}).json()
    (failure,) = manifest["failures"]
    assert failure["reason"] == "request_finished_without_staged_coordinates"
    assert manifest["records"] == []
