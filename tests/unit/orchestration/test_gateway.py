"""The gateway's replica: a server of its own, and what is passed on to it."""

import asyncio
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
import pytest

from nemo_gym.orchestration.ray_serve_gateway import Replica, parser, passed_on, replica_command, replicas_per_node
from tests.ports import free_port

# Answers with what it was sent; /stream writes a part, and the rest once the other end has asked for /go.
SERVER = """
import sys, asyncio
waiting = 0
go = asyncio.Event()
async def answer(reader, writer):
    global waiting
    head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode()
    method, target, _ = head.split(" ", 2)
    body = b""
    if "chunked" in head.lower():
        while size := int((await reader.readline()).strip() or b"0", 16):
            body += await reader.readexactly(size); await reader.readline()
        await reader.readline()
    if target == "/health":
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    elif target == "/stream":
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nConnection: close\\r\\n\\r\\nfirst ")
        waiting += 1
        await writer.drain(); await go.wait(); writer.write(b"second")
    else:
        if target == "/go":
            go.set()
        text = f"{method} {target} {'x-mine: 1' in head.lower()} {body.decode()}".encode()
        text = f"waiting {waiting}".encode() if target == "/waiting" else text
        writer.write(b"HTTP/1.1 418 Teapot\\r\\nX-Theirs: 2\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(text) + text)
    await writer.drain(); writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    port = free_port()
    made = Replica([sys.executable, "-c", SERVER, str(port)], port)
    await made.start(timeout=60, poll=0.02)
    yield made
    await made.stop()


def client(replica: Replica) -> httpx.AsyncClient:
    app: Any = replica
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway", timeout=60)


async def test_requests_are_passed_on_with_headers_bodies_and_odd_targets(replica: Replica) -> None:
    async with client(replica) as http:
        posted = await http.post("/v1/chat?x=%20y", content=b"body", headers={"X-Mine": "1"})
        assert (posted.status_code, posted.headers["x-theirs"]) == (418, "2")
        assert posted.text == "POST /v1/chat?x=%20y True body"
        assert (await http.get("/any/%2Fpath")).text == "GET /any/%2Fpath False "
        assert (await http.get("/health")).status_code == 200
        assert (await http.get(httpx.URL("http://gateway", raw_path=b"/a%7Eb?c=%7E"))).text.startswith(
            "GET /a%7Eb?c=%7E "
        )
        assert (await http.delete("/x")).status_code == 405


async def test_as_many_requests_as_come_are_passed_on_at_once(replica: Replica) -> None:
    """More than an HTTP client's usual bound of 100 connections wait for an answer together."""
    async with client(replica) as http, asyncio.timeout(60):
        asked = [asyncio.create_task(http.get("/stream")) for _ in range(150)]
        while (await http.get("/waiting")).text.split()[-1] != "150":
            await asyncio.sleep(0)
        await http.get("/go")
        assert {answer.text for answer in await asyncio.gather(*asked)} == {"first second"}


async def test_an_answer_is_streamed(replica: Replica) -> None:
    """The first part arrives while the server still waits to write the rest."""
    parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/stream", "query_string": b"", "headers": []}
    asked = asyncio.create_task(replica(scope, receive, parts.put))
    start = await parts.get()
    assert (b"Content-Type", b"text/event-stream") in start["headers"]
    assert (await parts.get())["body"] == b"first "
    async with client(replica) as http:
        await http.get("/go")
    assert (await parts.get())["body"] == b"second"
    await asked


async def test_a_server_that_is_gone_is_502_and_unhealthy(replica: Replica) -> None:
    assert await replica.is_healthy()
    assert replica._process is not None
    replica._process.kill()
    await replica._process.wait()
    assert not await replica.is_healthy()
    async with client(replica) as http:
        answer = await http.get("/v1/models")
    assert answer.status_code == 502 and "does not answer" in answer.text


async def test_a_server_that_ends_before_it_is_ready_is_told() -> None:
    replica = Replica([sys.executable, "-c", "import sys; sys.exit(3)"], free_port())
    with pytest.raises(RuntimeError, match="ended with exit code 3"):
        await replica.start(timeout=60, poll=0.02)
    await replica.stop()


def test_a_replica_has_the_flags_of_the_gateway() -> None:
    settings = parser().parse_args(
        shlex.split(
            "--model m --port 1 --tensor-parallel-size 4 --pipeline-parallel-size 2 --number-of-instances 3 "
            "--gpus-per-node 16 --trust-remote-code --served-model-name n '--extra-args=--seed 1'"
        )
    )
    assert " ".join(replica_command(settings, 9)) == (
        "vllm serve m --port 9 --tensor-parallel-size 4 --pipeline-parallel-size 2 "
        "--distributed-executor-backend ray --served-model-name n --trust-remote-code --seed 1"
    )
    assert replicas_per_node(settings) == 2
    settings.gpus_per_node = 4
    assert replicas_per_node(settings) == 1


def test_what_is_meant_for_this_hop_is_not_passed_on() -> None:
    headers = [(b"Connection", b"close"), (b"HOST", b"a"), (b"transfer-encoding", b"chunked"), (b"X-Mine", b"1")]
    assert passed_on(headers) == [("X-Mine", "1")]


async def test_an_answer_that_breaks_off_is_not_begun_again() -> None:
    """Two beginnings would be no HTTP."""
    port = free_port()
    server = await asyncio.start_server(_breaks_off, "127.0.0.1", port)
    replica = Replica([sys.executable, "-c", "import signal; signal.pause()"], port)
    await replica.start(timeout=60, poll=0.02)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/models", "query_string": b"", "headers": []}
    with pytest.raises(aiohttp.ClientError):
        await replica(scope, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    await replica.stop()
    server.close()
    await server.wait_closed()


async def _breaks_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0 if b"/health" in head else 100
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + b"part" * bool(length))
    await writer.drain()
    writer.close()


async def test_a_server_that_is_never_healthy_is_ended() -> None:
    replica = Replica([sys.executable, "-c", "import signal; signal.pause()"], free_port())
    with pytest.raises(RuntimeError, match=r"was not healthy within 0\.1 s"):
        await replica.start(timeout=0.1, poll=0.02)
    assert replica._process is not None and replica._process.returncode == -signal.SIGTERM
