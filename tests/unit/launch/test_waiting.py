"""Waiting for servers by events, and for model endpoints by asking."""

from __future__ import annotations

import http.server
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.errors import ConfigError
from nemo_gym.launch import endpoints
from nemo_gym.launch.endpoints import EndpointWait, ModelEndpoint, Probed, endpoints_of_run, model_endpoints, probe
from nemo_gym.launch.errors import ServerFailedError, ServersLateError
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.readiness import Awaited, Readiness
from nemo_gym.launch.sockets import listen
from nemo_gym.launch.status import probe as probe_all
from nemo_gym.launch.status import server_instances_at, status_lines, uptime_text
from nemo_gym.launch.supervisor import Supervisor
from tests.unit.launch import toys
from tests.unit.launch.toys import free_port


class Answering(http.server.BaseHTTPRequestHandler):
    status = 200
    body = b"{}"

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def answering(bound: socket.socket | None = None, *, status: int = 200, body: bytes = b"{}") -> Iterator[str]:
    """An HTTP server, on a given socket or its own; gives its address."""
    handler = type("Handler", (Answering,), {"status": status, "body": body})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=bound is None)
    if bound is not None:
        server.socket.close()
        server.socket = bound.dup()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor({"a": tmp_path / "a.log", "b": tmp_path / "b.log"})
    yield made
    made.close()


class Waiting:
    """A readiness wait with its pipes in hand."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.ready: list[str] = []
        self.reports: list[str] = []
        self.readiness = Readiness(supervisor, self.ready.append, self.reports.append)

    def expect(self, name: str, port: int, *, probe_after: float = 1000.0) -> int:
        pipe, far_end = os.pipe()
        self.readiness.expect(Awaited(name, pipe, ("127.0.0.1", port), time.monotonic() + probe_after))
        return far_end


@pytest.fixture
def waiting(supervisor: Supervisor) -> Iterator[Waiting]:
    made = Waiting(supervisor)
    yield made
    made.readiness.close()


def test_a_byte_means_ready(waiting: Waiting) -> None:
    for name in ("a", "b"):
        far_end = waiting.expect(name, 1)
        os.write(far_end, b"1")
        os.close(far_end)
    waiting.readiness.wait(20)
    assert sorted(waiting.ready) == ["a", "b"]


def test_an_answer_means_ready_too(waiting: Waiting) -> None:
    with listen("127.0.0.1", 0) as bound:
        far_end = waiting.expect("a", bound.getsockname()[1], probe_after=0.0)
        threading.Timer(0.1, serve_one_reply, [bound]).start()
        waiting.readiness.wait(20)
    os.close(far_end)
    assert waiting.ready == ["a"]


def test_a_byte_and_an_answer_at_once_are_one_readiness(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    monkeypatch.setattr(Readiness, "_connect", lambda self, server: near)
    with far:
        far.sendall(b"HTTP/1.1 200 OK")
        far_end = waiting.expect("a", 1, probe_after=0.0)
        os.write(far_end, b"1")
        os.close(far_end)
        waiting.readiness.wait(20)
    assert waiting.ready == ["a"]


def serve_one_reply(bound: socket.socket) -> None:
    connection, _ = bound.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")
    connection.close()


def test_a_pipe_that_closes_without_a_byte_is_not_ready(waiting: Waiting) -> None:
    os.close(waiting.expect("a", free_port()))
    with pytest.raises(ServersLateError, match=r"After 0\.2 s, 0 / 1 servers ready; waiting for a \(not started\)"):
        waiting.readiness.wait(0.2)


def test_a_death_ends_the_wait_at_once(
    waiting: Waiting, supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nemo_gym.launch.readiness.PROGRESS_SECONDS", 3600)
    far_end = waiting.expect("a", 1)
    (tmp_path / "a.log").write_text("why\n")
    process = ServerProcess("a", [], 1)

    def die() -> None:
        process.end_with(3)
        supervisor.note_death(process)

    threading.Timer(0.05, die).start()
    error = toys.raised_soon(lambda: waiting.readiness.wait(None))
    assert isinstance(error, ServerFailedError)
    assert str(error).startswith("Server a (pid 1) exited with code 3 ")
    assert str(error).endswith("\n(a) why")
    os.close(far_end)


def test_progress_names_the_late_ones_and_their_state(
    waiting: Waiting, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nemo_gym.launch.readiness.PROGRESS_SECONDS", 0.05)
    supervisor.add("a", ServerProcess("a", [], 12))
    ends = [waiting.expect("a", 1), waiting.expect("b", 1)]
    with pytest.raises(ServersLateError):
        waiting.readiness.wait(0.3)
    assert waiting.reports[0] == "0 / 2 servers ready; waiting for a (starting, pid 12), b (not started)"
    for end in ends:
        os.close(end)


def test_the_first_death_is_the_culprit(supervisor: Supervisor) -> None:
    for pid, name in enumerate(("b", "a"), start=1):
        process = ServerProcess(name, [], pid)
        process.end_with(-9)
        supervisor.note_death(process)
    with pytest.raises(ServerFailedError, match=r"Server b .* was killed by SIGKILL .* It wrote nothing"):
        supervisor.check()
    supervisor.expect_deaths()
    supervisor.check()


# --- model endpoints ---


def test_every_base_url_of_model_servers_counts_once() -> None:
    judge = {"base_url": ["http://a/v1/", "http://b", ""], "x_base_url": None}
    config = {
        "policy_model": {"responses_api_models": {"openai_model": {"base_url": "http://a/v1", "model": "m"}}},
        "judge": {"responses_api_models": {"vllm_model": judge}},
        "other": {"resources_servers": {"x": {"base_url": "http://c"}}},
        "base_url": "http://d",
    }
    policy_key = "policy_model.responses_api_models.openai_model.base_url"
    judge_key = "judge.responses_api_models.vllm_model.base_url"
    assert [endpoint.describe() for endpoint in model_endpoints(config)] == [
        f"http://a/v1 (from {policy_key}, {judge_key})",
        f"http://b (from {judge_key})",
    ]


def test_a_block_that_cannot_be_resolved_has_no_endpoint_and_the_others_have_theirs() -> None:
    def block(url: str) -> dict[str, Any]:
        return {"responses_api_models": {"openai_model": {"base_url": url}}}

    config = OmegaConf.create({"url": "http://a/v1", "fine": block("${url}"), "broken": block("${nowhere}")})
    plans = cast(list[ServerPlan], [SimpleNamespace(name=name) for name in ("broken", "fine")])
    assert [endpoint.url for endpoint in endpoints_of_run(config, plans)] == ["http://a/v1"]


def test_an_openai_address_is_asked_for_its_models() -> None:
    assert ModelEndpoint("http://a/v1/", ()).probe_url == "http://a/v1/models"
    assert ModelEndpoint("http://a/x", ()).probe_url == "http://a/x"
    assert ModelEndpoint("http://me:pw@a/v1", ()).probe_url == "http://a/v1/models"


@pytest.mark.parametrize("status", [200, 401, 404, 503])
def test_any_status_is_an_answer(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(status=status) as url:
        assert probe(ModelEndpoint(url, ())) == Probed("up")


def test_tls_trouble_is_an_answer() -> None:
    with answering() as url:
        assert probe(ModelEndpoint(url.replace("http", "https"), ())) == Probed("up")


def test_nobody_there_is_none() -> None:
    assert probe(ModelEndpoint(f"http://127.0.0.1:{free_port()}", ())) == Probed("down", "connection refused")
    with listen("127.0.0.1", 0) as silent:
        found = probe(ModelEndpoint(f"http://127.0.0.1:{silent.getsockname()[1]}", ()), 0.1)
        assert found == Probed("down", "no answer within 0.1 s")


def wait_for(*urls: str, timeout: float = 0.2, pause: Any = lambda _: None) -> list[str]:
    reports: list[str] = []
    wait = EndpointWait(reports.append, pause, lambda text: text.replace("s3cret", "****"))
    wait.wait([ModelEndpoint(url, ("policy.base_url",)) for url in urls], timeout)
    return reports


def test_an_endpoint_that_comes_up_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter([Probed("down", "connection refused"), Probed("down", "connection refused"), Probed("up")])
    monkeypatch.setattr(endpoints, "probe", lambda endpoint, seconds: next(states))
    monkeypatch.setattr(endpoints, "REPORT_EVERY_SECONDS", 0.0)
    pauses: list[float] = []
    reports = wait_for("http://u:s3cret@a", timeout=1000, pause=pauses.append)
    assert pauses == [endpoints.PROBE_EVERY_SECONDS] * 2
    told = "Waiting for the model (0 s of at most 1000 s): http://u:****@a (from policy.base_url): connection refused"
    first = told.replace("1000 s)", "1000 s; +model_endpoint_readiness_timeout_seconds=N sets that)")
    assert reports == [first, told]


def test_a_silent_endpoint_is_named_with_its_key() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    told = rf"No answer within 0\.2 s from {url} \(from policy\.base_url\): connection refused\. Start the endpoint"
    with pytest.raises(ConfigError, match=told):
        wait_for(url)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "s3cret.example", "ftp://a/v1", "http://[::1/v1", "http:///v1"])
def test_an_address_that_no_client_could_ask_is_told_at_once(url: str) -> None:
    told = f"Not an http(s) address: {url.replace('s3cret', '****')} (from policy.base_url)."
    with pytest.raises(ConfigError, match=re.escape(told)):
        wait_for("http://a", url, timeout=1000)


def test_an_unknown_host_is_told_once_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "probe", lambda endpoint, seconds: Probed("unknown host"))
    url = "http://nowhere.invalid/v1"
    told = f"The host nowhere.invalid of {url} (from policy.base_url) can't be resolved here; not waiting for it."
    assert wait_for(url) == [told]


# --- status ---


def test_the_servers_behind_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(body=b'[{"process_name": "mcqa"}]') as url:
        assert server_instances_at(url + "/") == [{"process_name": "mcqa"}]
    assert server_instances_at(f"http://127.0.0.1:{free_port()}") is None
    with answering(body=b"<html>") as url:
        assert server_instances_at(url) is None


def test_health_of_each_server() -> None:
    with answering(status=500) as up, listen("127.0.0.1", 0) as silent:
        urls = [up, f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{silent.getsockname()[1]}", None]
        assert probe_all([{"url": url} for url in urls], 0.2) == [
            "success",
            "connection_error",
            "timeout",
            "unknown_error",
        ]
    assert probe_all([]) == []


def test_what_a_person_reads() -> None:
    server = {"process_name": "mcqa", "server_type": "resources_servers", "name": "mcqa", "port": 1, "pid": 2}
    healthy = {**server, "status": "success", "uptime_seconds": 93784.5}
    lines = status_lines([healthy, {**server, "status": "timeout"}])
    assert lines[1] == "[1] ✓ mcqa (resources_servers/mcqa)"
    assert lines[2:7] == [
        "    server_type: resources_servers",
        "    name: mcqa",
        "    port: 1",
        "    pid: 2",
        "    uptime: 1d 2h 3m 4.5s",
    ]
    assert lines[7].startswith("[2] ✗ mcqa")
    assert lines[-1] == "2 servers found (1 healthy, 1 unhealthy)"
    assert uptime_text(0.04) == "0d 0h 0m 0.0s"
