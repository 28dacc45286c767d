"""Calls whose tokens are captured: prefixes that an engine has to keep to, and engines that stage tokens themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from nemo_gym.token_id_capture import TokenCaptureStore
from nemo_gym.token_id_capture.staging.capture import RolloutTokenCapture
from nemo_gym.token_id_capture.staging.records import CaptureAdmission, StagedCallRecord, StageResult
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.tests.serving import make_config

PREFIX = "/ng-rollout/r/training-token-capture"
USER = {"role": "user", "content": "hi"}


class Engine:
    """An engine that counts its turns; `prompts` are what it says it generated from, one a turn."""

    base_url = "http://engine/v1"

    def __init__(self, prompts: list[list[int]] | None = None) -> None:
        self.prompts = prompts or [[1], [1, 101, 2], [1, 101, 2, 102, 3]]
        self.bodies: list[dict[str, Any]] = []
        self.records: dict[str, StagedCallRecord] = {}
        self.capture = RolloutTokenCapture(sink=self, weight_version_fn=lambda: 1)

    def stage(self, record: StagedCallRecord, *, attachments: Any = None) -> StageResult:
        self.records[record.staging_key] = record
        return StageResult(ok=True, staging_key=record.staging_key)

    async def create_chat_completion(self, **body: Any) -> dict[str, Any]:
        self.bodies.append(body)
        turn = len(self.bodies)
        prompt, generation = self.prompts[turn - 1], [100 + turn]
        message: dict[str, Any] = {"role": "assistant", "content": f"turn {turn}"}
        tokens = {"prompt_token_ids": prompt, "generation_token_ids": generation, "generation_log_probs": [-0.5]}
        if body.get("logprobs"):
            message |= tokens
        answer = {
            "id": f"chat-{turn}",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }
        if "ng_capture" in body:
            answer["ng_commit_coords"] = self._staged(
                CaptureAdmission.model_validate(body["ng_capture"]), prompt, generation
            )
        return answer

    def _staged(self, admission: CaptureAdmission, prompt: list[int], generation: list[int]) -> dict[str, Any]:
        prefix = [token for key in admission.staging_chain for token in self.records[key].token_ids_delta]
        call = self.capture.begin_call(admission, prefix_token_ids=prefix or None)
        coords = self.capture.complete_call(
            call, prompt_token_ids=prompt, generated_token_ids=generation, generated_logprobs=[-0.5]
        )
        return coords.model_dump(mode="json")


def client_of(engine: Engine, capture: dict[str, Any], **config: Any) -> tuple[TestClient, VLLMModel]:
    server_client = MagicMock(spec=ServerClient)
    server_client.global_config_dict = {"token_id_capture": {"enabled": True, **capture}}
    server = VLLMModel(
        config=make_config("http://engine/v1", uses_reasoning_parser=False, **config), server_client=server_client
    )
    server._clients = [engine]  # type: ignore[list-item]
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app, raise_server_exceptions=False), server


SUPPLY = {"return_token_id_information": True, "supply_prefix_token_ids": True}


def _talk(client: TestClient, turns: int) -> list[int]:
    items: list[Any] = [USER]
    statuses = []
    for _ in range(turns):
        reply = client.post(f"{PREFIX}/v1/responses", json={"input": items})
        statuses.append(reply.status_code)
        if reply.status_code == 200:
            items += [*reply.json()["output"], {"role": "user", "content": "and?"}]
    return statuses


def test_a_continuation_is_asked_with_the_exact_tokens_before_it(tmp_path: Path) -> None:
    engine = Engine()
    client, server = client_of(engine, {"dir": str(tmp_path)}, **SUPPLY)
    assert _talk(client, 3) == [200, 200, 200]
    prefixes = [body.get("required_prefix_token_ids") for body in engine.bodies]
    assert prefixes == [None, [1, 101], [1, 101, 2, 102]]
    entries = TokenCaptureStore(tmp_path).read_entries("r")
    assert [(entry.prefix_requested, entry.prefix_supplied) for entry in entries] == [
        (False, False),
        (True, True),
        (True, True),
    ]
    assert server._prefix_supply_counts == {"without_parent": 1, "supplied": 2}


def test_an_engine_that_does_not_keep_to_the_prefix_is_an_error(tmp_path: Path) -> None:
    client, _ = client_of(Engine([[1], [1, 999, 2]]), {"dir": str(tmp_path)}, **SUPPLY)
    assert _talk(client, 2) == [200, 500]
    assert TokenCaptureStore(tmp_path).freeze_now("r").incomplete


def test_no_prefix_outside_of_captured_calls_or_without_a_known_parent(tmp_path: Path) -> None:
    engine = Engine()
    client, _ = client_of(engine, {"dir": str(tmp_path)}, **SUPPLY)
    history = {"messages": [USER, {"role": "assistant", "content": "never said"}, USER]}
    assert client.post(f"{PREFIX}/v1/chat/completions", json=history).status_code == 200
    assert client.post("/v1/chat/completions", json=history).status_code == 200
    assert all("required_prefix_token_ids" not in body for body in engine.bodies)


def _staging(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN", "secret")
    return {
        "external_staging": True,
        "rebuild_response": False,
        "lineage_store": "nemo_gym.token_id_capture.lineage:FileLineageStore",
        "lineage_store_kwargs": {"root": str(root)},
    }


def _manifest(client: TestClient) -> dict[str, Any]:
    path = "/training-token-capture/control/rollouts/r/manifest"
    reply = client.get(path, headers={"Authorization": "Bearer secret"})
    assert reply.status_code == 200
    manifest: dict[str, Any] = reply.json()
    return manifest


def test_an_engine_stages_a_rollout_and_its_answers_carry_no_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    client, _ = client_of(engine, _staging(tmp_path, monkeypatch))
    first = client.post(f"{PREFIX}/v1/responses", json={"input": [USER]}).json()
    assert "token_ids" not in str(first) and "ng_commit_coords" not in str(first)
    _talk_on = [USER, *first["output"], {"role": "user", "content": "and?"}]
    second = client.post(f"{PREFIX}/v1/responses", json={"input": _talk_on}).json()
    manifest = _manifest(client)
    assert manifest["failures"] == []
    assert [row["response_id"] for row in manifest["records"]] == [first["id"], second["id"]]
    assert manifest["records"][1]["parent_call_id"] == manifest["records"][0]["model_call_id"]
    assert [body["ng_capture"]["mode"] for body in engine.bodies] == ["text", "token_in"]
    assert len(engine.records) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hi"}),
        ("/v1/chat/completions", {"messages": [USER]}),
        ("/v1/messages", {"model": "m", "max_tokens": 5, "messages": [USER]}),
    ],
)
def test_staged_calls_of_every_dialect_are_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], stream: bool
) -> None:
    engine = Engine()
    client, _ = client_of(engine, _staging(tmp_path, monkeypatch))
    reply = client.post(PREFIX + path, json={**body, "stream": True} if stream else body)
    assert (reply.status_code, "turn 1" in reply.text) == (200, True)
    manifest = _manifest(client)
    assert (len(manifest["records"]), manifest["failures"]) == (1, [])
    assert manifest["records"][0]["response_id"] in reply.text
    assert "stream" not in engine.bodies[0]


def test_several_answers_can_not_be_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(Engine(), _staging(tmp_path, monkeypatch))
    reply = client.post(f"{PREFIX}/v1/chat/completions", json={"messages": [USER], "n": 2})
    assert reply.status_code == 400
    assert "n is 2" in reply.text


@pytest.mark.parametrize("key", ["return_token_id_information", "use_completions_api", "is_responses_native"])
def test_settings_that_staging_excludes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    with pytest.raises(ValueError, match=key):
        client_of(Engine(), _staging(tmp_path, monkeypatch), **{key: True})


@pytest.mark.parametrize("change", [{"use_completions_api": True}, {"is_responses_native": True}])
def test_settings_that_prefixes_exclude(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="supply_prefix_token_ids"):
        make_config("http://engine/v1", **SUPPLY, **change)
