from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import aiohttp
import pytest
from fastapi.testclient import TestClient

from environment_servers.legacy_agent.app import LegacyAgentEnvironmentServer, LegacyAgentEnvironmentServerConfig
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.server_utils import ServerClient

APP = Path(__file__).parents[1] / "app.py"
AGENT = {"type": "responses_api_agents", "name": "agent"}


def config(**fields: Any) -> LegacyAgentEnvironmentServerConfig:
    base = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "relay", "agent_server": AGENT}
    return LegacyAgentEnvironmentServerConfig.model_validate({**base, **fields})


def relay(body: bytes = b"{}", status: int = 200, *headers: tuple[str, str]) -> tuple[TestClient, AsyncMock]:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(
        return_value=LocalResponse(method="POST", url="http://a/run", status=status, raw_headers=raw, body=body)
    )
    server = LegacyAgentEnvironmentServer(config=config(), server_client=client)
    return TestClient(server.setup_webserver()), client.post


@pytest.mark.parametrize("path", ["/run", "/aggregate_metrics"])
def test_what_comes_in_goes_to_the_agent_unread(path: str) -> None:
    client, post = relay()
    client.cookies.set("sid", "1")
    client.post(path, content=b'{"not": valid', headers={"X-Own": "yes", "Content-Type": "application/json"})
    sent = post.call_args.kwargs
    assert (sent["server_name"], sent["url_path"], sent["data"]) == ("agent", path, b'{"not": valid')
    assert sent["cookies"] == {"sid": "1"}
    assert (sent["headers"]["x-own"], sent["headers"]["content-type"]) == ("yes", "application/json")
    assert not {"host", "connection", "content-length", "cookie", "transfer-encoding"} & sent["headers"].keys()


def test_what_the_agent_answers_goes_back_unchanged() -> None:
    cookies = [("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; Path=/")]
    others = [("X-NeMo-Gym-Cause", "{}"), ("Content-Type", "text/odd"), ("Content-Length", "99"), ("Date", "then")]
    client, _ = relay(b"teapot", 418, *cookies, *others)
    answer = client.post("/run", json={})
    assert (answer.status_code, answer.content) == (418, b"teapot")
    assert answer.headers.get_list("set-cookie") == ["a=1; Path=/", "b=2; Path=/"]
    assert (answer.headers["x-nemo-gym-cause"], answer.headers["content-type"]) == ("{}", "text/odd")
    assert answer.headers["content-length"] == "6" and "date" not in answer.headers


def test_limits_have_defaults_and_setting_them_is_told_to_be_in_vain() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert config().cleanup_timeout_seconds == 180
    with pytest.warns(UserWarning, match="relay: a legacy_agent ignores cleanup_timeout_seconds"):
        config(cleanup_timeout_seconds=5)


# --- as a process -----------------------------------------------------------------------------------------------------


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].split()[0])
    body = await reader.readexactly(length)
    cookies = b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
    writer.write(b"HTTP/1.1 202 Accepted\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n" % (cookies, length))
    writer.write(body)
    await writer.drain()
    writer.close()


@asynccontextmanager
async def serving(agent_port: int, folder: Path) -> AsyncIterator[int]:
    """The relay as a process of its own; it reports by a byte that it serves."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.listen()
    reading, writing = os.pipe()
    block = {"host": "127.0.0.1", "port": port, "entrypoint": "app.py", "agent_server": AGENT}
    agent = {"host": "127.0.0.1", "port": agent_port, "entrypoint": "app.py"}
    settings = {
        "head_server": {"host": "127.0.0.1", "port": 1},
        "agent": {"responses_api_agents": {"simple_agent": agent}},
        "relay": {"environment_servers": {"legacy_agent": block}},
    }
    environment = {
        **os.environ,
        "NEMO_GYM_CONFIG_DICT": json.dumps(settings),
        "NEMO_GYM_CONFIG_PATH": "relay",
        "NEMO_GYM_RUN_DIR": str(folder),
        "NEMO_GYM_LISTEN_FD": str(sock.fileno()),
        "NEMO_GYM_READY_FD": str(writing),
        "PYTHONPATH": str(APP.parents[2]),
    }
    process = subprocess.Popen(
        [sys.executable, APP.name], cwd=APP.parent, env=environment, pass_fds=(sock.fileno(), writing)
    )
    os.close(writing)
    sock.close()
    try:
        assert await asyncio.to_thread(os.read, reading, 1) == b"1"
        yield port
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)
        os.close(reading)


async def test_it_runs_as_a_process_too(tmp_path: Path) -> None:
    agent = await asyncio.start_server(_echo, "127.0.0.1", 0)
    async with (
        agent,
        serving(agent.sockets[0].getsockname()[1], tmp_path) as port,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
        client.post(f"http://127.0.0.1:{port}/run", data=b'{"row": 1}') as answer,
    ):
        assert (answer.status, await answer.read()) == (202, b'{"row": 1}')
        assert answer.headers.getall("set-cookie") == ["a=1", "b=2"]
