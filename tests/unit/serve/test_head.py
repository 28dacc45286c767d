from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from omegaconf import DictConfig, OmegaConf
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from nemo_gym import server_utils
from nemo_gym.config.handover import CONFIG_DICT_ENV, CONFIG_FILE_ENV, RUN_DIR_ENV, write_token
from nemo_gym.serve.errors import BusyPortError
from nemo_gym.serve.head_client import _authorization
from nemo_gym.server_utils import BaseServerConfig, HeadServer, ServerClient, ServerInstanceDisplayConfig
from tests.unit.serve.toys import free_socket, serving

SECRET = "sk-very-secret"


def run_config(port: int) -> DictConfig:
    return OmegaConf.create(
        {
            "head_server": {"host": "127.0.0.1", "port": port},
            "policy_api_key": SECRET,
            "res": {"resources_servers": {"toy": {"host": "127.0.0.1", "port": 5, "api_key": "${policy_api_key}"}}},
        }
    )


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(RUN_DIR_ENV, str(tmp_path))
    for name in (CONFIG_DICT_ENV, CONFIG_FILE_ENV):
        monkeypatch.delenv(name, raising=False)
    return write_token(tmp_path)


@pytest.fixture
def head(token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HeadServer, httpx.Client]]:
    sock = free_socket()
    port = sock.getsockname()[1]
    config = run_config(port)
    monkeypatch.setattr(server_utils, "get_global_config_dict", lambda: config)
    server, thread, head = HeadServer.run_webserver(sockets=[sock])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            yield head, client
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("path", ["/", "/livez"])
def test_it_lives_at_once(head: tuple[HeadServer, httpx.Client], path: str) -> None:
    assert head[1].get(path).json() == {"status": "ok"}


@pytest.mark.parametrize("path", ["/readyz", "/healthz", "/health"])
def test_it_is_ready_when_told(head: tuple[HeadServer, httpx.Client], path: str) -> None:
    server, client = head
    before = client.get(path)
    assert (before.status_code, before.json()) == (503, {"status": "starting"})
    server.mark_ready()
    after = client.get(path)
    assert (after.status_code, after.json()) == (200, {"status": "ok"})


def config_from(client: httpx.Client, headers: dict[str, str] | None = None) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(client.get("/global_config_dict_yaml", headers=headers).json())
    return loaded


def test_the_config_is_shown_without_secrets(head: tuple[HeadServer, httpx.Client], token: str) -> None:
    for authorization in (None, "Bearer wrong", f"Basic {token}", token, "Bearer x", "x y z"):
        shown = config_from(head[1], {"authorization": authorization} if authorization else None)
        assert shown["policy_api_key"] == "****"
        assert shown["res"]["resources_servers"]["toy"]["port"] == 5
        assert SECRET not in str(shown)


@pytest.mark.parametrize("authorization", ["Bearer None", "Bearer x"])
def test_without_a_token_nobody_gets_secrets(
    head: tuple[HeadServer, httpx.Client], tmp_path: Path, authorization: str
) -> None:
    (tmp_path / "token").unlink()
    assert config_from(head[1], {"authorization": authorization})["policy_api_key"] == "****"


def test_the_owner_gets_the_whole_config_unresolved(head: tuple[HeadServer, httpx.Client], token: str) -> None:
    shown = config_from(head[1], {"authorization": f"Bearer {token}"})
    assert shown["policy_api_key"] == SECRET
    assert shown["res"]["resources_servers"]["toy"]["api_key"] == "${policy_api_key}"


def test_the_run_itself_is_not_masked(head: tuple[HeadServer, httpx.Client]) -> None:
    config_from(head[1])
    assert server_utils.get_global_config_dict().policy_api_key == SECRET


def test_a_changed_config_is_shown_when_told(head: tuple[HeadServer, httpx.Client]) -> None:
    server, client = head
    assert "added" not in config_from(client)
    server_utils.get_global_config_dict()["added"] = 1
    assert "added" not in config_from(client)
    server.invalidate_global_config_dict_yaml_cache()
    assert config_from(client)["added"] == 1


def test_instances_are_listed_as_given(head: tuple[HeadServer, httpx.Client]) -> None:
    server, client = head
    assert client.get("/server_instances").json() == []
    shown = ServerInstanceDisplayConfig(name="toy", port=5, pid=7).model_dump(mode="json")
    server.set_server_instances([shown])
    assert client.get("/server_instances").json() == [shown] == list(server.get_server_instances())
    assert list(shown) == EXPECTED_KEYS


EXPECTED_KEYS = [
    "config_path",
    "dir_path",
    "entrypoint",
    "host",
    "name",
    "pid",
    "port",
    "process_name",
    "server_type",
    "start_time",
    "status",
    "uptime_seconds",
    "url",
]


def test_web_pages_are_kept_out(head: tuple[HeadServer, httpx.Client]) -> None:
    assert head[1].get("/server_instances", headers={"host": "evil.example"}).status_code == 421
    assert head[1].get("/server_instances", headers={"origin": "http://evil.example"}).status_code == 403


def test_a_client_of_the_same_user_gets_the_whole_config(head: tuple[HeadServer, httpx.Client]) -> None:
    port = head[1].base_url.port
    assert port is not None
    client = ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=port))
    assert client.global_config_dict.res.resources_servers.toy.api_key == SECRET
    assert client.base_url("res") == "http://127.0.0.1:5"


def test_a_client_without_the_token_gets_the_addresses(
    head: tuple[HeadServer, httpx.Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_ENV, str(tmp_path / "elsewhere"))
    port = head[1].base_url.port
    assert port is not None
    client = ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=port))
    assert client.base_url("res") == "http://127.0.0.1:5"
    assert SECRET not in OmegaConf.to_yaml(client.global_config_dict)


def test_the_token_is_not_told_to_other_machines(token: str) -> None:
    assert _authorization("127.0.0.1", 1) == {"Authorization": f"Bearer {token}"}
    assert _authorization("10.0.0.9", 1) == {}


async def test_what_is_no_head_server_is_named(token: str) -> None:
    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await JSONResponse({"some": "thing"})(scope, receive, send)

    async with serving(other) as port:
        config = BaseServerConfig(host="127.0.0.1", port=port)
        with pytest.raises(ValueError, match="no head server of NeMo Gym"):
            await asyncio.to_thread(ServerClient.load_from_global_config, config)


def test_a_busy_port_is_one_clear_sentence(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with free_socket() as sock:
        config = run_config(sock.getsockname()[1])
        monkeypatch.setattr(server_utils, "get_global_config_dict", lambda: config)
        before = threading.active_count()
        with pytest.raises(BusyPortError, match=rf"Port {sock.getsockname()[1]} on 127.0.0.1 is in use"):
            HeadServer.run_webserver()
        assert threading.active_count() == before


def test_without_a_socket_it_binds_its_own(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = run_config(port)
    monkeypatch.setattr(server_utils, "get_global_config_dict", lambda: config)
    server, thread, _ = HeadServer.run_webserver()
    try:
        assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
        assert thread.daemon
    finally:
        server.should_exit = True
        thread.join(20)
