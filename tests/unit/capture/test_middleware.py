from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.base_responses_api_model import CaptureStore, _CaptureMiddleware
from nemo_gym.capture import middleware
from nemo_gym.capture.middleware import ModelCallMiddleware
from nemo_gym.rollout_correlation import RolloutContextMiddleware, current_rollout_id
from tests.unit.capture.asgi import EVENTS, App, call, part, start

ANSWER = {"id": "r1", "object": "response", "status": "completed", "output": [], "usage": {"input_tokens": 2}}
PLAIN = [start(), part(orjson.dumps(ANSWER))]
DONE = b"data: [DONE]\n\n"


def captured(app: Any, tmp_path: Path, **fields: Any) -> _CaptureMiddleware:
    return _CaptureMiddleware(app, store=CaptureStore(tmp_path), model_server_name="policy", **fields)


def only_exchange(tmp_path: Path, rollout_id: str = "0-0") -> dict[str, Any]:
    (exchange,) = CaptureStore(tmp_path).read(rollout_id)
    return exchange


async def test_a_plain_call_is_recorded_with_its_bodies(tmp_path: Path) -> None:
    app = App(PLAIN)
    headers = [(b"authorization", b"Bearer sk-secret"), (b"x-session-id", b"inv-1")]
    sent = await call(
        captured(app, tmp_path), "/ng-rollout/0-0/v1/responses", b'{"input":"hi","model":"m"}', headers=headers
    )
    assert sent == PLAIN
    exchange = only_exchange(tmp_path)
    assert list(exchange) == [
        "model_call_id",
        "dialect",
        "model_ref",
        "started_at",
        "completed_at",
        "latency_ms",
        "latency_ttft_ms",
        "status_code",
        "error_category",
        "request",
        "response",
        "client_session_id",
    ]
    assert exchange["dialect"] == "responses" and exchange["client_session_id"] == "inv-1"
    assert exchange["model_ref"] == {"type": "responses_api_models", "name": "policy"}
    assert exchange["request"] == {"input": "hi", "model": "m"} and exchange["response"] == ANSWER
    assert exchange["status_code"] == 200 and exchange["error_category"] is None
    assert exchange["completed_at"] >= exchange["started_at"]
    assert 0 <= exchange["latency_ttft_ms"] <= exchange["latency_ms"]
    assert b"sk-secret" not in CaptureStore(tmp_path).path_for("0-0").read_bytes()
    scope = app.scopes[0]
    assert scope["path"] == "/v1/responses" and scope["nemo_gym.model_call_id"] == exchange["model_call_id"]


async def test_only_model_calls_of_a_rollout_are_recorded(tmp_path: Path) -> None:
    app = App(PLAIN)
    for path in ("/v1/responses", "/ng-rollout/0-0/tokenize", "/ng-rollout/0-0/v1/models"):
        assert await call(captured(app, tmp_path), path) == PLAIN
    without_store = _CaptureMiddleware(app, store=None, model_server_name=None)
    await call(without_store, "/ng-rollout/0-0/v1/responses")
    assert [scope["path"] for scope in app.scopes] == ["/v1/responses", "/tokenize", "/v1/models", "/v1/responses"]
    assert list(tmp_path.iterdir()) == []


async def test_the_handler_knows_its_rollout_and_the_training_prefix_goes_too(tmp_path: Path) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((current_rollout_id(), scope["path"]))
        for message in PLAIN:
            await send(message)

    await call(captured(app, tmp_path), "/ng-rollout/7-1/training-token-capture/v1/chat/completions")
    assert seen == [("7-1", "/v1/chat/completions")] and only_exchange(tmp_path, "7-1")["dialect"] == "chat"


async def test_the_last_chunk_waits_until_the_record_is_on_disk(tmp_path: Path) -> None:
    state: list[tuple[bytes, int]] = []

    async def look(message: Any) -> None:
        state.append((message.get("body", b""), len(CaptureStore(tmp_path).read("0-0"))))

    whole = orjson.dumps(ANSWER)
    app = App([start(), part(whole[:4], more=True), part(whole[4:])])
    await call(captured(app, tmp_path), "/ng-rollout/0-0/v1/responses", send=look)
    assert state == [(b"", 0), (whole[:4], 0), (whole[4:], 1)]


STREAMS = {
    "/v1/responses": (b'event: response.completed\ndata: {"response":{"id":"r"}}\n\n', None),
    "/v1/responses?": (b'event: response.incomplete\ndata: {"response":{"id":"r"}}\n\n', "incomplete"),
    "/v1/responses??": (b'event: response.failed\ndata: {"response":{"id":"r"}}\n\n', "upstream_error"),
    "/v1/responses???": (b'event: error\ndata: {"message":"no"}\n\n', "upstream_error"),
    "/v1/chat/completions": (DONE, None),
    "/v1/chat/completions?": (b'data: {"error": {"code": 500}}\n\n' + DONE, "upstream_error"),
    "/v1/chat/completions??": (b'data: {"error": null, "choices": []}\n\n' + DONE, None),
    "/v1/chat/completions???": (b'event: error\ndata: {"error": {}}\n\n', "upstream_error"),
    "/v1/messages": (b'event: message_stop\ndata: {"type": "message_stop"}\n\n', None),
    "/v1/messages?": (b"event: error\r\ndata: {}\r\n\r\n", "upstream_error"),
    "/v1/messages??": (b"event: content_block_stop\ndata: {}\n\n", "stream_truncated"),
}


@pytest.mark.parametrize(("path", "frames", "category"), [(path.rstrip("?"), *want) for path, want in STREAMS.items()])
async def test_a_stream_goes_on_at_once_but_for_its_end(
    tmp_path: Path, path: str, frames: bytes, category: str | None
) -> None:
    state: list[tuple[bytes, int]] = []

    async def look(message: Any) -> None:
        state.append((message.get("body", b""), len(CaptureStore(tmp_path).read("0-0"))))

    first = b"data: {}\n\n"
    app = App([start(content_type=EVENTS), part(first, more=True), part(frames, more=True), part(b"")])
    await call(captured(app, tmp_path), f"/ng-rollout/0-0{path}", send=look)
    is_ending = category != "stream_truncated"
    assert state == [(b"", 0), (first, 0), (frames, 1 if is_ending else 0), (b"", 1)]
    exchange = only_exchange(tmp_path)
    assert exchange["error_category"] == category
    assert exchange["response_raw"] == (first + frames).decode()


async def test_an_end_cut_into_chunks_is_still_seen(tmp_path: Path) -> None:
    state: list[tuple[bytes, int]] = []

    async def look(message: Any) -> None:
        state.append((message.get("body", b""), len(CaptureStore(tmp_path).read("0-0"))))

    chunks = [b"data: {}\n\ndata: [", b"DO", b"NE]\n", b"\n"]
    app = App([start(content_type=EVENTS), *(part(chunk, more=True) for chunk in chunks), part(b"")])
    await call(captured(app, tmp_path), "/ng-rollout/0-0/v1/chat/completions", send=look)
    assert state == [(b"", 0), *zip([*chunks, b""], (0, 0, 1, 1, 1), strict=True)]
    assert only_exchange(tmp_path)["error_category"] is None


async def test_comments_that_keep_a_stream_alive_are_no_first_token(tmp_path: Path) -> None:
    app = App([start(content_type=EVENTS), part(b": keep-alive\n\n", more=True), part(b"")])
    await call(captured(app, tmp_path), "/ng-rollout/0-0/v1/chat/completions")
    assert only_exchange(tmp_path)["latency_ttft_ms"] is None


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, "client_error"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (408, "timeout"),
        (422, "client_error"),
        (429, "rate_limit"),
        (500, "upstream_error"),
        (503, "upstream_error"),
        (504, "timeout"),
        (307, None),
    ],
)
async def test_statuses_have_categories(tmp_path: Path, status: int, category: str | None) -> None:
    await call(captured(App([start(status), part(b"text")]), tmp_path), "/ng-rollout/0-0/v1/messages", b"[1]")
    exchange = only_exchange(tmp_path)
    assert (exchange["status_code"], exchange["error_category"]) == (status, category)
    assert exchange["request"] is None and exchange["request_raw"] == "[1]"
    assert exchange["response"] is None and exchange["response_raw"] == "text"


async def test_a_success_that_is_no_object_is_a_capture_error(tmp_path: Path) -> None:
    await call(captured(App([start(), part(b"<html>")]), tmp_path), "/ng-rollout/0-0/v1/messages")
    assert only_exchange(tmp_path)["error_category"] == "capture_parse_error"


class ServerDisconnectedError(Exception):
    pass


class ReadTimeout(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (ServerDisconnectedError(), "connection"),
        (TimeoutError(), "timeout"),
        (ReadTimeout(), "timeout"),
        (KeyError("x"), "exception"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
async def test_what_a_handler_raises_is_recorded_and_raised_on(
    tmp_path: Path, error: BaseException, category: str
) -> None:
    with pytest.raises(type(error)):
        await call(captured(App([error]), tmp_path), "/ng-rollout/0-0/v1/messages")
    exchange = only_exchange(tmp_path)
    assert (exchange["status_code"], exchange["error_category"]) == (None, category)


async def test_an_error_after_the_end_of_a_stream_takes_nothing_from_the_client(tmp_path: Path) -> None:
    sent: list[bytes] = []

    async def look(message: Any) -> None:
        sent.append(message.get("body", b""))

    app = App([start(content_type=EVENTS), part(DONE, more=True), KeyError("late")])
    with pytest.raises(KeyError):
        await call(captured(app, tmp_path), "/ng-rollout/0-0/v1/chat/completions", send=look)
    assert sent == [b"", DONE] and only_exchange(tmp_path)["error_category"] == "exception"


async def test_what_the_server_notes_about_its_answer_is_kept(tmp_path: Path) -> None:
    execution = {
        "upstream_attempted": True,
        "response_source": "local",
        "upstream_status_code": 400,
        "local_response_reason": "context_length_exceeded",
    }
    await call(captured(App(PLAIN, {**execution, "other": 1}), tmp_path), "/ng-rollout/0-0/v1/responses")
    exchange = only_exchange(tmp_path)
    assert {name: exchange[name] for name in execution} == execution and "other" not in exchange
    assert exchange["error_category"] == "context_length_exceeded"


async def test_a_session_id_counts_only_if_given_once(tmp_path: Path) -> None:
    headers = [(b"x-session-id", b"a"), (b"X-Session-Id", b"b")]
    await call(captured(App(PLAIN), tmp_path), "/ng-rollout/0-0/v1/responses", headers=headers)
    assert "client_session_id" not in only_exchange(tmp_path)


async def test_a_record_that_cant_be_written_marks_the_rollout_and_the_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: CaptureStore, rollout_id: str, exchange: dict[str, Any]) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(CaptureStore, "record", fail)
    sent = await call(captured(App(PLAIN), tmp_path), "/ng-rollout/0-0/v1/responses")
    assert sent == PLAIN and CaptureStore(tmp_path).is_incomplete("0-0") and "0-0" in caplog.text


async def test_an_id_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    start, _ = await call(captured(App(PLAIN), tmp_path), "/ng-rollout/a b/v1/responses")
    assert start["status"] == 400 and list(tmp_path.iterdir()) == []


async def test_bodies_too_long_to_keep_are_left_out(tmp_path: Path) -> None:
    calls = ModelCallMiddleware(App(PLAIN), store=CaptureStore(tmp_path), model_server_name="policy", max_body_bytes=10)
    body = b'{"input": "0123456789"}'
    sent = await call(RolloutContextMiddleware(calls), "/ng-rollout/0-0/v1/responses", body)
    exchange = only_exchange(tmp_path)
    assert sent == PLAIN and exchange["payload_omitted"] is True
    assert exchange["request"] is exchange["response"] is None and exchange["error_category"] is None
    assert not {"request_raw", "response_raw"} & set(exchange)


async def test_clients_that_leave_do_not_unmake_their_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, is_writing = threading.Event(), threading.Event()
    record = CaptureStore.record

    def slow(self: CaptureStore, rollout_id: str, exchange: dict[str, Any]) -> None:
        is_writing.set()
        assert goes_on.wait(10)
        record(self, rollout_id, exchange)

    monkeypatch.setattr(CaptureStore, "record", slow)
    monkeypatch.setattr(middleware, "WRITERS", 1)
    app = captured(App(PLAIN), tmp_path)
    tasks = [asyncio.ensure_future(call(app, "/ng-rollout/0-0/v1/responses")) for _ in range(2)]
    await asyncio.to_thread(is_writing.wait, 10)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    goes_on.set()
    calls: Any = app.app.app
    calls._writers.shutdown()
    assert all(task.cancelled() for task in tasks) and len(CaptureStore(tmp_path).read("0-0")) == 2
