"""Calls whose tokens inference workers stage, seen from the model server and from the trainer that asks it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from nemo_gym.token_id_capture import (
    CaptureContext,
    FileLineageStore,
    InMemoryLineageStore,
    reset_token_sink,
    resolve_parent,
    set_token_sink,
)
from nemo_gym.token_id_capture.config import token_id_capture_config
from nemo_gym.token_id_capture.control_routes import RolloutControlClient, control_auth_token, install_control_routes
from nemo_gym.token_id_capture.errors import (
    ConflictingEntryError,
    ExternalCaptureError,
    LineageLookupError,
    TokenCaptureConfigError,
    TokenCaptureError,
)
from nemo_gym.token_id_capture.external_capture import (
    ExternalCaptureHandler,
    VLLMWorkerCaptureHandler,
    make_external_capture_handler,
)
from nemo_gym.token_id_capture.protocols import CaptureLedgerCommit
from nemo_gym.token_id_capture.staging.capture import RolloutTokenCapture
from nemo_gym.token_id_capture.staging.rebuild import verify_and_linearize
from nemo_gym.token_id_capture.staging.records import (
    CaptureAdmission,
    CommitCoords,
    RolloutReceipt,
    StagedCallRecord,
    StageResult,
)
from tests.unit.token_id_capture.calls import said, user


class Worker:
    """An inference worker that stages in memory: every prompt is the prefix and one token per message added."""

    def __init__(self) -> None:
        self.records: dict[str, StagedCallRecord] = {}
        self.capture = RolloutTokenCapture(sink=self, weight_version_fn=lambda: 1)

    def stage(self, record: StagedCallRecord, *, attachments: Any = None) -> StageResult:
        self.records[record.staging_key] = record
        return StageResult(ok=True, staging_key=record.staging_key)

    def answer(self, request: dict[str, Any], text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "prompt_token_ids": [1], "routed_experts": "e"}
        choice = {"message": message, "logprobs": {"content": []}, "token_ids": [1]}
        reply: dict[str, Any] = {"id": f"chat-{text}", "prompt_token_ids": [1], "choices": [choice]}
        if "ng_capture" in request:
            admission = CaptureAdmission.model_validate(request["ng_capture"])
            prefix = [t for key in admission.staging_chain for t in self.records[key].token_ids_delta]
            call = self.capture.begin_call(admission, prefix_token_ids=prefix or None)
            coords = self.capture.complete_call(
                call,
                prompt_token_ids=[*prefix, *(len(m["content"]) for m in request["messages"][-1:])],
                generated_token_ids=[100 + len(text)],
                generated_logprobs=[-0.5],
            )
            reply["ng_commit_coords"] = coords.model_dump(mode="json")
        return reply


@contextmanager
def captured(ledger: Any, call_id: str) -> Iterator[CaptureContext]:
    context = CaptureContext("r", call_id, None, ledger, external_staging=True, admitted_at=5.0)
    token = set_token_sink(context)
    try:
        yield context
    finally:
        reset_token_sink(token)


HANDLER = VLLMWorkerCaptureHandler()


async def _call(worker: Worker, ledger: Any, call_id: str, items: list[dict[str, Any]], text: str) -> dict[str, Any]:
    with captured(ledger, call_id):
        await resolve_parent(items)
        request = HANDLER.prepare_request({"messages": items, "stream": True, "stream_options": {}})
        reply = worker.answer(request, text)
        HANDLER.prepare_response(reply)
        await HANDLER.finalize_response(reply)
        return {"request": request, "reply": reply}


@pytest.fixture(params=["files", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return FileLineageStore(tmp_path) if request.param == "files" else InMemoryLineageStore()


async def test_a_rollout_is_staged_and_put_together_from_its_manifest(ledger: Any) -> None:
    worker = Worker()
    first = await _call(worker, ledger, "a", [user("hi")], "x")
    items = [user("hi"), said("x"), user("and?")]
    second = await _call(worker, ledger, "b", items, "yy")
    assert first["request"]["ng_capture"]["mode"] == "text"
    assert (first["request"]["logprobs"], first["request"]["top_logprobs"]) == (True, 0)
    assert first["request"]["return_tokens_as_token_ids"] is True
    assert "stream" not in first["request"] and "stream_options" not in first["request"]
    assert second["request"]["ng_capture"]["staging_chain"] == ["r/a"]
    assert second["request"]["ng_capture"]["prev_len"] == 2
    assert second["reply"] == {"id": "chat-yy", "choices": [{"message": {"role": "assistant", "content": "yy"}}]}

    manifest = await ledger.manifest("r")
    assert manifest.failures == []
    assert [(row.model_call_id, row.response_id) for row in manifest.records] == [("a", "chat-x"), ("b", "chat-yy")]
    assert (manifest.records[0].admitted_at, manifest.records[1].parent_call_id) == (5.0, "a")
    receipt = RolloutReceipt(rollout_id="r", terminal_model_call_id="b", manifest=manifest.records)
    row = verify_and_linearize(receipt, list(worker.records.values()))
    assert row.token_ids == [2, 101, 4, 102]


async def test_a_request_that_continues_nothing_known_poisons_the_rollout(ledger: Any) -> None:
    found = await _call(Worker(), ledger, "a", [user("hi"), said("never"), user("and?")], "x")
    assert "ng_capture" not in found["request"]
    manifest = await ledger.manifest("r")
    assert [(f.model_call_id, f.reason) for f in manifest.failures] == [("a", "unresolved_parent")]


@pytest.mark.parametrize(
    ("coords", "reason"),
    [
        (None, "worker_response_missing_commit_coordinates"),
        ({"disposition": "capture_failed"}, "worker_capture_failed"),
        ({"disposition": "staged"}, "invalid_worker_commit_coordinates"),
        ({"disposition": "other"}, "invalid_worker_commit_coordinates"),
        ("text", "invalid_worker_commit_coordinates"),
    ],
)
async def test_a_worker_that_did_not_stage_poisons_the_rollout(ledger: Any, coords: Any, reason: str) -> None:
    if isinstance(coords, dict):
        coords = {"rollout_id": "r", "model_call_id": "a", "mode": "text", **coords}
    await _reply_with(ledger, coords)
    manifest = await ledger.manifest("r")
    assert ([f.reason for f in manifest.failures], manifest.records) == ([reason], [])


async def _reply_with(ledger: Any, coords: Any) -> None:
    with captured(ledger, "a"):
        await resolve_parent([user("hi")])
        HANDLER.prepare_request({"messages": [user("hi")]})
        reply = {"id": "x", "choices": [{"message": {"content": "x"}}]}
        HANDLER.prepare_response({**reply, "ng_commit_coords": coords} if coords else reply)
        await HANDLER.finalize_response(reply)


async def test_coordinates_of_another_call_are_invalid(ledger: Any) -> None:
    worker = Worker()
    other = worker.answer(
        {"messages": [user("x")], "ng_capture": {"rollout_id": "r", "model_call_id": "z", "mode": "text"}}, "x"
    )
    await _reply_with(ledger, other["ng_commit_coords"])
    assert [f.reason for f in (await ledger.manifest("r")).failures] == ["invalid_worker_commit_coordinates"]


async def test_outside_of_a_staged_call_nothing_is_changed() -> None:
    request, reply = {"messages": [], "stream": True}, {"ng_commit_coords": 1, "prompt_token_ids": [1]}
    assert HANDLER.prepare_request(request) is request
    HANDLER.prepare_response(reply)
    await HANDLER.finalize_response(reply)
    assert reply == {"ng_commit_coords": 1, "prompt_token_ids": [1]}


async def test_megatron_gets_its_admission_among_its_own_parameters(ledger: Any) -> None:
    handler = make_external_capture_handler("megatron_worker")
    assert isinstance(handler, ExternalCaptureHandler)
    with captured(ledger, "a"):
        await resolve_parent([user("hi")])
        request = handler.prepare_request({"messages": [], "offload_params": {"x": 1}})
        with pytest.raises(ExternalCaptureError, match="n is 2"):
            handler.prepare_request({"messages": [], "n": 2})
    assert (request["n"], request["offload_params"]["x"]) == (1, 1)
    assert request["offload_params"]["ng_capture"]["model_call_id"] == "a"
    assert "ng_capture" not in request and "logprobs" not in request


def test_there_are_two_backends() -> None:
    assert isinstance(make_external_capture_handler("vllm_worker"), VLLMWorkerCaptureHandler)
    with pytest.raises(ExternalCaptureError):
        make_external_capture_handler("tpu")  # type: ignore[arg-type]


async def test_a_lookup_that_fails_fails_the_call() -> None:
    class Broken(InMemoryLineageStore):
        async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> Any:
            raise OSError("gone")

    with captured(Broken(), "a"), pytest.raises(LineageLookupError, match="gone"):
        await resolve_parent([user("hi"), said("x")])


def _coords(call_id: str, **fields: Any) -> CommitCoords:
    worker = Worker()
    request = {"messages": [user("x")], "ng_capture": {"rollout_id": "r", "model_call_id": call_id, "mode": "text"}}
    return CommitCoords.model_validate({**worker.answer(request, "x")["ng_commit_coords"], **fields})


async def test_rows_that_lack_something_are_failures_in_the_manifest(ledger: Any) -> None:
    await ledger.record(CaptureLedgerCommit("r", "a", _coords("a")))
    await ledger.record(CaptureLedgerCommit("r", "b", _coords("b", chain_hash=None), response_id="x"))
    await ledger.record(CaptureLedgerCommit("r", "c", _coords("c"), response_id="x"))
    manifest = await ledger.manifest("r")
    assert [(f.model_call_id, f.reason) for f in manifest.failures] == [
        ("a", "ledger_row_missing_response_id"),
        ("b", "ledger_row_missing_chain_hash"),
    ]
    assert [row.model_call_id for row in manifest.records] == ["c"]


async def test_a_call_has_one_row(ledger: Any) -> None:
    assert not await ledger.has_rows("r")
    commit = CaptureLedgerCommit("r", "a", _coords("a"), response_id="x")
    await ledger.record(commit)
    await ledger.record(commit)
    assert await ledger.has_rows("r")
    with pytest.raises(ConflictingEntryError):
        await ledger.record(CaptureLedgerCommit("r", "a", _coords("a"), response_id="y"))
    await ledger.record_failure("r", "a", "first")
    await ledger.record_failure("r", "a", "second")
    manifest = await ledger.manifest("r")
    assert ([f.reason for f in manifest.failures], len(manifest.records)) == (["first"], 1)


async def test_another_process_reads_the_ledger(tmp_path: Path) -> None:
    await _call(Worker(), FileLineageStore(tmp_path), "a", [user("hi")], "x")
    assert len((await FileLineageStore(tmp_path).manifest("r")).records) == 1


# --- the control route ----------------------------------------------------------------------------------------------


def _app(ledger: Any) -> FastAPI:
    app = FastAPI()
    install_control_routes(app, ledger, auth_token="secret")
    return app


PATH = "/training-token-capture/control/rollouts/{}/manifest"


@pytest.mark.parametrize(
    ("authorization", "rollout_id", "status"),
    [
        ("Bearer secret", "r", 200),
        ("bearer secret", "r", 200),
        ("Bearer wrong", "r", 401),
        ("Bearer ", "r", 401),
        ("Basic secret", "r", 401),
        (None, "r", 401),
        (None, "a b", 401),
        ("Bearer secret", "a b", 400),
        ("Bearer sécret", "r", 401),
    ],
)
async def test_manifests_are_for_those_with_the_token(
    tmp_path: Path, authorization: str | None, rollout_id: str, status: int
) -> None:
    app = _app(FileLineageStore(tmp_path))
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://m") as client:
        reply = await client.get(PATH.format(rollout_id), headers=headers)  # type: ignore[arg-type]
    assert reply.status_code == status
    if status == 200:
        assert reply.json() == {"schema_version": 2, "rollout_id": "r", "records": [], "failures": []}


async def test_the_client_reads_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = FileLineageStore(tmp_path)
    await _call(Worker(), ledger, "a", [user("hi")], "x")
    app = _app(ledger)
    make = httpx.AsyncClient
    monkeypatch.setattr(httpx, "AsyncClient", lambda **kwargs: make(transport=httpx.ASGITransport(app), **kwargs))
    async with RolloutControlClient("http://m/", auth_token="secret", request_timeout_s=5) as client:
        assert [row.model_call_id for row in (await client.manifest("r")).records] == ["a"]
        with pytest.raises(TokenCaptureError, match="HTTP 400"):
            await client.manifest("a b")
    async with RolloutControlClient("http://m", auth_token="wrong", request_timeout_s=5) as client:
        with pytest.raises(TokenCaptureError, match="HTTP 401"):
            await client.manifest("r")


def test_the_token_is_taken_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    config = token_id_capture_config({"token_id_capture": {"control_auth_token_env": "MY_TOKEN"}})
    monkeypatch.delenv("MY_TOKEN", raising=False)
    with pytest.raises(TokenCaptureConfigError, match="MY_TOKEN"):
        control_auth_token(config)
    monkeypatch.setenv("MY_TOKEN", "secret")
    assert control_auth_token(config) == "secret"
