from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.serve.bodies import read_body
from nemo_gym.serve.guards import BodyLimit, HostGuard, host_of, is_loopback, refuse
from nemo_gym.serve.json_app import json_app
from tests.unit.serve.toys import call_app, serving


async def fine(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


async def status_for(headers: dict[str, str], own: list[str] | None = None) -> int:
    status, _, _ = await call_app(HostGuard(fine, own_hosts=own or []), "/", headers=headers)
    return status


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8000", "127.9.9.9", "localhost", "LocalHost:1", "a.localhost", "[::1]:9", "localhost."],
)
async def test_loopback_hosts_are_answered(host: str) -> None:
    assert await status_for({"host": host}) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.7", "", "[::2]", "[x"]
)
async def test_other_hosts_are_refused(host: str) -> None:
    assert await status_for({"host": host}) == 421
    assert await status_for({"host": host}) == 421


async def test_an_own_host_is_answered() -> None:
    assert await status_for({"host": "box.internal:1"}, ["Box.internal"]) == 200


@pytest.mark.parametrize(
    ("origin", "status"), [("http://localhost:3000", 200), ("http://evil.example", 403), ("null", 403)]
)
async def test_web_pages_of_other_hosts_are_refused(origin: str, status: int) -> None:
    assert await status_for({"host": "localhost", "origin": origin}) == status


async def test_the_refusal_names_the_reason() -> None:
    _, _, body = await call_app(HostGuard(fine), "/", headers={"host": "evil.example"})
    assert b"loopback" in body


@pytest.mark.parametrize(
    ("host", "answer"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("h", False)],
)
def test_loopback(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer


@pytest.mark.parametrize(("authority", "host"), [("h:1", "h"), ("[::1]:2", "::1"), ("h", "h"), ("", "")])
def test_host_of(authority: str, host: str) -> None:
    assert host_of(authority) == host


def sized_app() -> ASGIApp:
    app = json_app()

    @app.post("/size")
    async def size(request: Request, body: dict[str, str]) -> int:
        return len(body["v"])

    app.add_middleware(BodyLimit, max_bytes=100)
    return app


async def chunks(size: int) -> AsyncIterator[bytes]:
    yield b'{"v": "'
    yield b"x" * size
    yield b'"}'


@pytest.mark.parametrize(("size", "status"), [(50, 200), (200, 413)])
async def test_bodies_of_known_and_unknown_length_are_bounded(size: int, status: int) -> None:
    async with serving(sized_app()) as port, httpx.AsyncClient() as client:
        url, headers = f"http://127.0.0.1:{port}/size", {"content-type": "application/json"}
        known = await client.post(url, content=b'{"v": "%s"}' % (b"x" * size), headers=headers)
        streamed = await client.post(url, content=chunks(size), headers=headers)
    assert (known.status_code, streamed.status_code) == (status, status)
    if status == 413:
        assert "100 bytes" in known.json()["detail"] and "100 bytes" in streamed.json()["detail"]


async def test_the_excess_is_a_413_wherever_the_body_is_read() -> None:
    async def reads_to_the_end(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await read_body(receive)
        except HTTPException:
            if scope["path"] == "/raised":
                raise
        await refuse(send, 500, "not the server's fault")

    async with serving(BodyLimit(reads_to_the_end, max_bytes=100)) as port, httpx.AsyncClient() as client:
        urls = [f"http://127.0.0.1:{port}/{path}" for path in ("raised", "swallowed")]
        answers = [await client.post(url, content=chunks(200)) for url in urls]
    assert [answer.status_code for answer in answers] == [413, 413]
    assert all("100 bytes" in answer.json()["detail"] for answer in answers)
