"""Reports on launching, connections and data flow that no other test carries the id of."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from nemo_gym.launch.errors import PortTakenError
from nemo_gym.launch.sockets import Endpoint, PortRange, close_all, listen_all
from nemo_gym.serve import connections, uvicorn_server
from nemo_gym.serve.head_client import probe

ROOT = Path(__file__).parents[2]
FETCHED_BY_THE_FIRST_COMMAND = ROOT / "responses_api_models" / "llama_cpp_model" / "requirements.txt"
LOW = 43_200


def test_ten_launches_at_once_share_a_narrow_range() -> None:
    """B19: thirty sockets out of forty ports, chosen and bound in one step: no two launches get the same."""
    ports = PortRange(LOW, LOW + 39)
    wanted = [Endpoint(name, "127.0.0.1", 0, may_move=True) for name in ("resources", "agent", "model")]

    def launch(_: int) -> list[int]:
        bound = listen_all(wanted, ports)
        sockets.append(bound)
        return [each.getsockname()[1] for each in bound.values()]

    sockets: list[dict[str, socket.socket]] = []
    try:
        with ThreadPoolExecutor(10) as pool:
            taken = [port for found in pool.map(launch, range(10)) for port in found]
        assert len(set(taken)) == 30 and all(LOW <= port <= LOW + 39 for port in taken)
        with pytest.raises(PortTakenError, match="widen the range"):
            for _ in range(10):
                launch(0)
    finally:
        for bound in sockets:
            close_all(bound.values())


class NothingHere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


def test_a_server_without_a_root_route_is_alive() -> None:
    """B25: any HTTP answer counts as listening."""
    with HTTPServer(("127.0.0.1", 0), NothingHere) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        assert probe(f"http://127.0.0.1:{server.server_port}", 5) == "success"
        thread.join()


def test_servers_keep_idle_connections_longer_than_clients() -> None:
    """B33: else a client sends on a connection that its server is closing."""
    assert uvicorn_server.KEEP_ALIVE_SECONDS > connections.KEEP_ALIVE_SECONDS + 5


def test_what_the_first_command_fetches_is_pinned() -> None:
    """B104: the engine and the weights are exact versions; all else is in uv.lock with its hashes."""
    lines = [line for line in FETCHED_BY_THE_FIRST_COMMAND.read_text().split("\n") if line and line[0] not in "-#"]
    assert lines and all("==" in line for line in lines)
    locked = (ROOT / "uv.lock").read_text()
    assert locked.count("sha256:") > 1000
