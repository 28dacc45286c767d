"""Scripted faults, counting, and the provider as a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.mock_provider import Fault, MockProvider, Reply, Script

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider() as provider:
        yield provider


def ask(mock: MockProvider) -> httpx.Response:
    return httpx.post(mock.url + CHAT, json=BODY)


def fail(mock: MockProvider, fault: Fault) -> httpx.Response:
    mock.play(Reply(fault=fault))
    return ask(mock)


def test_status_faults(mock: MockProvider) -> None:
    limited = fail(mock, Fault(status=429, retry_after=3, code="rate_limit_exceeded", message="slow down"))
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "3")
    assert limited.json()["error"]["code"] == "rate_limit_exceeded"
    assert "retry-after" not in fail(mock, Fault(status=429)).headers
    assert fail(mock, Fault()).status_code == 500
    assert fail(mock, Fault(status=503, body={"a": 1})).json() == {"a": 1}


def test_context_length(mock: MockProvider) -> None:
    reply = fail(mock, Fault("context_length"))
    assert reply.status_code == 400
    assert "maximum context length" in reply.json()["error"]["message"]


def test_a_dropped_socket(mock: MockProvider) -> None:
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        fail(mock, Fault("drop"))


def test_half_a_reply(mock: MockProvider) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="expected"):
        fail(mock, Fault("half"))


def test_garbage(mock: MockProvider) -> None:
    reply = fail(mock, Fault("garbage"))
    assert reply.status_code == 200
    with pytest.raises(ValueError):
        reply.json()


def test_never_answers_until_the_client_goes(mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault("hang")))
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(mock.url + CHAT, json=BODY, timeout=0.2)
    assert mock.count == 1
    mock.play("ok")
    assert ask(mock).status_code == 200


def test_unknown_routes_streams_and_bodies(mock: MockProvider) -> None:
    assert httpx.post(mock.url + "/nope", json={}).status_code == 404
    assert httpx.post(mock.url + CHAT, json=BODY | {"stream": True}).status_code == 400
    assert httpx.post(mock.url + CHAT, content=b"{").status_code == 400


def test_requests_are_recorded(mock: MockProvider) -> None:
    httpx.post(mock.url + CHAT, json=BODY, headers={"X-Test": "1"})
    assert mock.last_body == BODY
    assert mock.requests[0].headers["x-test"] == "1"
    assert mock.bodies(CHAT) == [BODY] and mock.bodies("/v1/responses") == []
    mock.play("again")
    assert (mock.count, mock.requests) == (0, [])


async def test_in_flight_maximum(mock: MockProvider) -> None:
    mock.play(Script.of(Reply(text="slow"), latency=0.1))
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:
        replies = await asyncio.gather(*(client.post(mock.url + CHAT, json=BODY, timeout=30) for _ in range(20)))
    assert {reply.status_code for reply in replies} == {200}
    assert (mock.max_in_flight, mock.in_flight, mock.count) == (20, 0, 20)


def test_keep_alive_serves_many_on_one_connection(mock: MockProvider) -> None:
    with socket.create_connection(("127.0.0.1", mock.port)) as connection:
        for _ in range(3):
            connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_as_a_process(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"default": "from a file"}))
    command = [sys.executable, "-m", "tests.mock_provider", "--script", str(script), "--record", "5"]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            assert process.stdout is not None
            check_process(f"http://127.0.0.1:{int(process.stdout.readline())}")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


def check_process(url: str) -> None:
    assert httpx.post(url + CHAT, json=BODY).json()["choices"][0]["message"]["content"] == "from a file"
    stats: dict[str, Any] = httpx.get(url + "/_mock/stats").json()
    assert (stats["requests"], stats["by_path"], stats["max_in_flight"]) == (1, {CHAT: 1}, 1)
    assert stats["cpu_seconds"] > 0
    assert httpx.get(url + "/_mock/requests").json()[0]["body"] == BODY
    assert httpx.post(url + "/_mock/script", json={"default": "another"}).status_code == 200
    assert httpx.post(url + CHAT, json=BODY).json()["choices"][0]["message"]["content"] == "another"
    assert httpx.post(url + "/_mock/script", json={"x": 1}).status_code == 400


def test_a_missing_script_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.mock_provider", "--script", str(tmp_path / "no.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 2
    assert "no.json" in done.stderr and "Traceback" not in done.stderr
