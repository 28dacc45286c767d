"""Calls to servers that move: they go on where the server is, and none is made twice."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.instances import BaseServerConfig
from nemo_gym.config.placement import set_servers_move
from nemo_gym.serve import whereabouts
from nemo_gym.serve.retries import ALLOWANCES, IDEMPOTENCY_HEADER, REPEATED_HEADER, Allowance, Fault
from nemo_gym.serve.whereabouts import Whereabouts, read_addresses
from nemo_gym.server_utils import ServerClient
from tests.ports import free_port

KINDS = {"agent": "responses_api_agents", "tools": "resources_servers", "model": "responses_api_models"}
Served = list[dict[str, Any]]


class Place:
    """Somewhere a server is; `served` are the requests it got. While `holds` is clear it answers none of them."""

    def __init__(self) -> None:
        self.served: Served = []
        self.holds = threading.Event()
        self.holds.set()
        self.asked = threading.Event()
        place = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                place.served.append(
                    {"path": self.path, **{name.lower(): value for name, value in self.headers.items()}}
                )
                place.asked.set()
                place.holds.wait(30)
                body = json.dumps({"from": place.port}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                body = json.dumps([{"process_name": "tools", "url": f"http://127.0.0.1:{place.port}"}]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.holds.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def places() -> Iterator[Callable[[], Place]]:
    made: list[Place] = []

    def make() -> Place:
        made.append(Place())
        return made[-1]

    yield make
    for place in made:
        place.close()


class Run:
    """The folder and config of a run whose servers move."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        servers = {name: {kind: {"toy": {"host": "127.0.0.1", "port": port}}} for name, kind in KINDS.items()}
        self.config: DictConfig = OmegaConf.create(servers)
        set_servers_move(self.config)
        self.tell(port)

    def tell(self, port: int) -> None:
        temporary = self.folder / "new"
        temporary.write_text(json.dumps(dict.fromkeys(KINDS, f"http://127.0.0.1:{port}")))
        temporary.replace(self.folder / "addresses.json")

    def client(self) -> ServerClient:
        head = BaseServerConfig(host="127.0.0.1", port=1)
        return ServerClient(head_server_config=head, global_config_dict=self.config)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(Whereabouts.__init__, "__kwdefaults__", {"every": 0.02})


@pytest.fixture
def run_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Run]:
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path))
    return lambda port: Run(tmp_path, port)


async def asked(client: ServerClient, server: str = "tools", path: str = "/verify") -> Any:
    answer = await client.post(server, path, json={"a": 1})
    return (await answer.json())["from"]


async def test_a_call_waits_for_a_server_that_is_nowhere(
    run_at: Callable[[int], Run], places: Callable[[], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than for one that stays where it is."""
    monkeypatch.setitem(ALLOWANCES, Fault.UNREACHABLE, Allowance(1, 0))
    run = run_at(free_port())
    call = asyncio.create_task(asked(run.client()))
    await asyncio.to_thread(time.sleep, 0.1)
    assert not call.done()
    new = places()
    run.tell(new.port)
    assert await call == new.port
    (request,) = new.served
    assert REPEATED_HEADER.lower() not in request, "it never reached the old place"


async def test_a_call_that_hangs_where_the_server_was_is_asked_again_where_it_is(
    run_at: Callable[[int], Run], places: Callable[[], Place]
) -> None:
    """A node that is cut off answers nobody, and closes no connection either."""
    old, new = places(), places()
    old.holds.clear()
    run = run_at(old.port)
    call = asyncio.create_task(asked(run.client()))
    await asyncio.to_thread(old.asked.wait, 20)
    run.tell(new.port)
    assert await call == new.port
    (first,), (second,) = old.served, new.served
    key = IDEMPOTENCY_HEADER.lower()
    assert first[key] == second[key]
    assert second[REPEATED_HEADER.lower()] == "1", "so that the new one can refuse what the old one may have done"


async def test_a_call_without_a_key_is_not_made_twice(
    run_at: Callable[[int], Run], places: Callable[[], Place]
) -> None:
    old, new = places(), places()
    old.holds.clear()
    run = run_at(old.port)
    call = asyncio.create_task(asked(run.client(), "model", "/v1/responses"))
    await asyncio.to_thread(old.asked.wait, 20)
    run.tell(new.port)
    with pytest.raises(aiohttp.ClientError):
        await call
    assert new.served == []
    assert await asked(run.client(), "model", "/v1/responses") == new.port


async def test_what_is_known_to_have_moved_is_called_where_it_is(
    run_at: Callable[[int], Run], places: Callable[[], Place]
) -> None:
    old, new = places(), places()
    run = run_at(old.port)
    client = run.client()
    assert await asked(client) == old.port
    run.tell(new.port)
    deadline = time.monotonic() + 20
    while client.base_url("tools") != f"http://127.0.0.1:{new.port}":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert await asked(client) == new.port
    assert len(old.served) == 1


async def test_a_server_that_stays_away_is_given_up(
    run_at: Callable[[int], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "MOVING_SECONDS", 0.1)
    with pytest.raises(aiohttp.ClientConnectorError):
        await asked(run_at(free_port()).client())


async def test_a_run_without_a_folder_here_is_asked_at_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Callable[[], Place]
) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path / "none"))
    new = places()
    config = Run(tmp_path, free_port()).config
    head = BaseServerConfig(host="127.0.0.1", port=new.port)
    assert await asked(ServerClient(head_server_config=head, global_config_dict=config)) == new.port


def test_other_runs_have_nobody_who_looks(tmp_path: Path) -> None:
    before = threading.active_count()
    head = BaseServerConfig(host="127.0.0.1", port=1)
    assert Whereabouts.of_run(OmegaConf.create({"tools": {}}), head) is None
    assert threading.active_count() == before


def test_nobody_looks_for_a_client_that_is_gone() -> None:
    before = set(threading.enumerate())
    looking = Whereabouts(lambda: None)
    (thread,) = set(threading.enumerate()) - before
    assert thread.name == "gym-whereabouts"
    del looking
    thread.join(20)
    assert not thread.is_alive()


def test_another_name_of_a_server_is_where_that_is() -> None:
    found = Whereabouts(lambda: {"agent": "http://h:2"}, {"relay": "agent", "agent": "agent"})
    found.look()
    assert found.base_url("relay", "http://h:1") == "http://h:2"


@pytest.mark.parametrize("content", [None, "", "[1]", "{"])
def test_a_file_that_says_nothing_is_no_error(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "addresses.json"
    if content is not None:
        file.write_text(content)
    assert read_addresses(file) is None
