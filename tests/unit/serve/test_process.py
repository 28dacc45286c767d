"""`run_webserver` in a process of its own, as the launcher and people start it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.handover import (
    CONFIG_FILE_ENV,
    INSTANCE_ENV,
    LISTEN_FD_ENV,
    READY_FD_ENV,
    RUN_DIR_ENV,
    write_token,
)
from nemo_gym.serve import limits
from nemo_gym.serve.errors import BusyPortError
from nemo_gym.serve.log_prefix import PrefixedStream
from nemo_gym.serve.process import own_instance_name
from nemo_gym.serve.sockets import bind, listener
from nemo_gym.serve.uvicorn_server import KeepaliveHttpToolsProtocol, ServingOptions, UvicornProxyHeadersConfig
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint, set_is_nemo_gym_fastapi_entrypoint
from tests.unit.serve.toys import free_socket

ROOT = Path(__file__).parents[3]
HEAD = {"host": "127.0.0.1", "port": 11000}
WORKER_NAMES = ("IS_NEMO_GYM_FASTAPI_WORKER", "IS_NEMO_GYM_FASTAPI_ENTRYPOINT", "NEMO_GYM_FASTAPI_NUM_WORKERS")
_NOT_INHERITED = ("NEMO_GYM", "IS_NEMO", "PYTHON")

COMPONENT = """
    import multiprocessing
    import os
    import signal
    import sys
    from nemo_gym.base_resources_server import *
    from nemo_gym.server_utils import SESSION_ID_KEY, is_nemo_gym_fastapi_entrypoint
    from fastapi import Request

    class Config(BaseResourcesServerConfig):
        verbosity: int = 1
        greeting: str = "hi"

    class Server(SimpleResourcesServer):
        config: Config

        def model_post_init(self, context):
            print("constructed")

        def setup_webserver(self):
            app = super().setup_webserver()
            app.post("/tell")(self.tell)
            app.post("/ask")(self.ask)
            app.post("/fail")(self.fail)
            app.post("/pool")(self.pool)
            return app

        async def tell(self, request: Request, body: dict) -> dict:
            print("line one\\nline two")
            env = {name: os.environ.get(name) for name in body["env"]}
            session = request.session[SESSION_ID_KEY]
            return {"pid": os.getpid(), "greeting": self.config.greeting, "env": env, "session": session}

        async def ask(self, request: Request, body: dict) -> dict:
            answer = await self.server_client.post("toy", "/tell", json=body, cookies=request.cookies)
            return {"answer": await answer.json(), "kind": type(answer).__name__}

        async def pool(self, body: dict) -> dict:
            processes = multiprocessing.get_context("fork").Pool(2)
            doubled = processes.map(abs, [-1, -2])
            processes.terminate()
            processes.join()
            child = os.fork()
            if child == 0:
                signal.raise_signal(signal.SIGTERM)
                os._exit(1)
            return {"values": doubled, "ended_by": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}

        async def fail(self, body: dict) -> dict:
            raise ValueError(f"token is {os.environ['TOY_SECRET']}")

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            return BaseVerifyResponse(**body.model_dump(), reward=1.0)

    if __name__ == "__main__":
        Server.run_webserver()
        print("left orderly")
    elif is_nemo_gym_fastapi_entrypoint(__file__):
        app = Server.run_webserver()
"""


class Started:
    """A server process with an inherited socket, and what it printed."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], port: int, ready: int) -> None:
        self.folder, self.process, self.port, self._ready = folder, process, port, ready
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20)

    def wait_ready(self) -> bytes:
        """The byte of readiness; nothing when the process ended without it."""
        assert select.select([self._ready], [], [], 60)[0], self.output()
        return os.read(self._ready, 2)

    def tell(self, *env: str) -> Any:
        return self.client.post("/tell", json={"env": env}).json()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def output(self) -> str:
        return (self.folder / "log").read_text()


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Started] = []
    (tmp_path / "app.py").write_text(textwrap.dedent(COMPONENT))

    def start(
        *,
        inherit: bool = True,
        port: int | None = None,
        top: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        **block: Any,
    ) -> Started:
        sock = free_socket()
        port = port or sock.getsockname()[1]
        entry = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port, "domain": "other", **block}
        config = {"head_server": HEAD, "toy": {"resources_servers": {"toy": entry}}, **(top or {})}
        (tmp_path / "config.json").write_text(json.dumps(config))
        ready, report = os.pipe()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)},
            "PYTHONPATH": str(ROOT),
            CONFIG_FILE_ENV: str(tmp_path / "config.json"),
            INSTANCE_ENV: "toy",
            RUN_DIR_ENV: str(tmp_path),
            "TOY_SECRET": "hunter22hunter22",
            READY_FD_ENV: str(report),
            **({LISTEN_FD_ENV: str(sock.fileno())} if inherit else {}),
            **(env or {}),
        }
        if not inherit:
            sock.close()
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "app.py"],
                cwd=tmp_path,
                env=environment,
                pass_fds=(report, *((sock.fileno(),) if inherit else ())),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        os.close(report)
        sock.close()
        started.append(Started(tmp_path, process, port, ready))
        return started[-1]

    yield start
    for one in started:
        one.client.close()
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        os.close(one._ready)


def test_serves_on_the_inherited_socket_and_says_when(start: Start) -> None:
    server = start(greeting="hello")
    assert server.wait_ready() == b"1"
    told = server.tell(LISTEN_FD_ENV, READY_FD_ENV)
    assert (told["pid"], told["greeting"]) == (server.process.pid, "hello")
    assert told["env"] == {LISTEN_FD_ENV: None, READY_FD_ENV: None}
    for path in ("/", "/health", "/healthz", "/livez", "/readyz"):
        assert server.client.get(path).json() == {"status": "ok"}
    assert server.stop() == 128 + signal.SIGTERM
    assert select.select([server._ready], [], [], 0)[0] and os.read(server._ready, 1) == b""


def test_requests_before_readiness_are_answered(start: Start) -> None:
    server = start()
    assert server.tell()["pid"] == server.process.pid


def test_binds_its_own_socket_when_none_is_given(start: Start) -> None:
    server = start(inherit=False)
    assert server.wait_ready() == b"1"
    assert server.client.get("/").status_code == 200
    assert server.stop(signal.SIGINT) == 128 + signal.SIGINT
    assert "Traceback" not in server.output()


def test_output_lines_say_whose_they_are(start: Start) -> None:
    server = start()
    server.wait_ready()
    server.tell()
    server.stop()
    assert "(toy) line one\n(toy) line two\n" in server.output()
    assert "Started server process" not in server.output() and "HTTP client" not in server.output()


def test_foreign_hosts_are_refused(start: Start) -> None:
    server = start()
    server.wait_ready()
    assert server.client.get("/", headers={"host": "evil.example"}).status_code == 421


def test_calls_to_itself_need_no_socket(start: Start) -> None:
    server = start()
    server.wait_ready()
    first = server.tell()
    answer = server.client.post("/ask", json={"env": []}).json()
    assert answer["kind"] == "LocalResponse"
    assert answer["answer"]["pid"] == server.process.pid
    assert answer["answer"]["session"] == first["session"]


def test_errors_name_the_server_and_hide_its_secrets(start: Start) -> None:
    server = start(api_key="hunter22hunter22")
    server.wait_ready()
    reply = server.client.post("/fail", json={})
    assert reply.status_code == 500 and reply.json() == "ValueError('token is ****')"
    assert json.loads(reply.headers["x-nemo-gym-cause"])["server"] == "Server___toy"
    assert server.client.post("/tell", content=b"{", headers={"content-type": "application/json"}).status_code == 422
    server.stop()
    assert "request validation failed" in server.output()
    assert "ValueError: token is ****" in server.output() and "hunter22hunter22" not in server.output()


@pytest.mark.parametrize("workers", [1, 2])
def test_forks_of_a_server_end_when_they_are_told_to(start: Start, workers: int) -> None:
    server = start(num_workers=workers)
    server.wait_ready()
    answer = server.client.post("/pool", json={}).json()
    assert answer == {"values": [1, 2], "ended_by": -signal.SIGTERM}
    assert server.tell()["greeting"] == "hi"


def test_a_mistyped_key_is_pointed_out(start: Start) -> None:
    server = start(verbosty=2, description="fine", verified=True)
    server.wait_ready()
    server.stop()
    assert (
        "server `toy` ignores the key `verbosty`, which Config doesn't have. Did you mean `verbosity`?"
        in server.output()
    )
    assert "description" not in server.output()


def test_a_wrong_value_is_one_sentence(start: Start) -> None:
    server = start(verbosity="loud")
    assert server.process.wait(60) == 1
    assert (
        "Error: The configuration of server `toy` is wrong: verbosity: Input should be a valid integer"
        in server.output()
    )
    assert "Traceback" not in server.output()
    assert server.wait_ready() == b""


def test_a_wrong_setting_of_all_servers_is_one_sentence(start: Start) -> None:
    server = start(top={"uvicorn_timeout_request_read": "soon"})
    assert server.process.wait(60) == 1
    assert "Error: The configuration is wrong: uvicorn_timeout_request_read: Input should be" in server.output()
    assert "Traceback" not in server.output()


def test_the_time_for_requests_can_be_set(start: Start) -> None:
    server = start(top={"uvicorn_timeout_request_read": 0.1})
    server.wait_ready()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_dry_run_constructs_and_leaves(start: Start) -> None:
    server = start(top={"dry_run": True})
    assert server.process.wait(60) == 0
    assert "constructed" in server.output() and "left orderly" in server.output()


def test_a_busy_port_is_one_sentence(start: Start) -> None:
    with free_socket() as taken:
        server = start(inherit=False, port=taken.getsockname()[1])
        assert server.process.wait(60) == 1
    assert f"Error: Port {server.port} on 127.0.0.1 is in use" in server.output()


def test_sessions_survive_in_any_process_with_the_runs_token(start: Start, tmp_path: Path) -> None:
    write_token(tmp_path)
    sessions = []
    cookie = ""
    for _ in range(2):
        server = start()
        server.wait_ready()
        reply = server.client.post("/tell", json={"env": []}, headers={"cookie": cookie})
        sessions.append(reply.json()["session"])
        cookie = reply.headers["set-cookie"].split(";")[0]
        server.stop()
    assert sessions[0] == sessions[1]


def test_workers_share_the_socket_and_end_together(start: Start) -> None:
    server = start(num_workers=3, top={"global_aiohttp_connector_limit": 30})
    assert server.wait_ready() == b"1"
    seen: dict[int, Any] = {}
    deadline = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < deadline:
        with httpx.Client(base_url=server.client.base_url) as fresh:
            told = fresh.post("/tell", json={"env": WORKER_NAMES}).json()
        seen[told["pid"]] = told["env"]
    assert len(seen) >= 2 and server.process.pid not in seen
    assert all(tuple(env.values()) == ("1", "app.py", "3") for env in seen.values())
    assert server.output().count("HTTP client: up to 30 connections") == 1
    server.stop()
    for pid in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_lost_worker_ends_the_server(start: Start) -> None:
    server = start(num_workers=2)
    server.wait_ready()
    os.kill(server.tell()["pid"], signal.SIGKILL)
    assert server.process.wait(60) == 1
    assert re.search(r"A worker \(process \d+\) ended with code -9", server.output())


def test_workers_die_with_their_parent(start: Start) -> None:
    server = start(num_workers=2)
    server.wait_ready()
    pid = server.tell()["pid"]
    server.process.kill()
    server.process.wait()
    assert ends(pid)


def ends(pid: int) -> bool:
    """Whether a process that isn't our child ends within a minute."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 60)[0])
    finally:
        os.close(descriptor)


def test_an_outer_server_of_apps_gets_the_app(start: Start, tmp_path: Path) -> None:
    program = "import app; print(type(app.app).__name__, app.app.url_path_for('tell'))"
    env = {
        "IS_NEMO_GYM_FASTAPI_WORKER": "1",
        "IS_NEMO_GYM_FASTAPI_ENTRYPOINT": "app.py",
        "NEMO_GYM_FASTAPI_NUM_WORKERS": "2",
    }
    first = start(env=env)
    first.process.wait(60)
    environment = {
        **os.environ,
        **env,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        CONFIG_FILE_ENV: str(tmp_path / "config.json"),
        INSTANCE_ENV: "toy",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert "FastAPI /tell" in done.stdout, done.stderr


# --- pieces -----------------------------------------------------------------------------------------------------------


def test_a_process_that_was_told_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INSTANCE_ENV, raising=False)
    with pytest.raises(ConfigError, match="gym env start"):
        own_instance_name()


def test_workers_know_their_entrypoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IS_NEMO_GYM_FASTAPI_ENTRYPOINT", "x")
    monkeypatch.delenv("IS_NEMO_GYM_FASTAPI_WORKER", raising=False)
    set_is_nemo_gym_fastapi_entrypoint("app.py")
    assert not is_nemo_gym_fastapi_entrypoint("/c/app.py")
    monkeypatch.setenv("IS_NEMO_GYM_FASTAPI_WORKER", "1")
    assert is_nemo_gym_fastapi_entrypoint("/c/app.py") and not is_nemo_gym_fastapi_entrypoint("/c/other.py")


class Collected:
    encoding = "utf-8"

    def __init__(self) -> None:
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def test_prefixes_go_before_lines_not_writes() -> None:
    inner: Any = Collected()
    stream = PrefixedStream(inner, "(x) ")
    for text in ("a", "b\n", "c\nd\n", "", "e\n\nf"):
        assert stream.write(text) == len(text)
    stream.writelines(["g\n", "h\n"])
    assert "".join(inner.writes) == "(x) ab\n(x) c\n(x) d\n(x) e\n(x) \n(x) fg\n(x) h\n"
    assert inner.writes[2] == "(x) c\n(x) d\n"
    assert stream.encoding == "utf-8"


def test_open_file_limits_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(limits.resource, "setrlimit", lambda _, pair: made.append(pair))  # type: ignore[attr-defined]
    for pair, expected, problem in (
        ((1024, 100_000), (65_535, 100_000), None),
        ((1024, 20_000), (20_000, 20_000), None),
        ((1024, 2048), (2048, 2048), "Only 2048 files"),
        ((70_000, 100_000), None, None),
    ):
        made.clear()
        monkeypatch.setattr(limits.resource, "getrlimit", lambda _, pair=pair: pair)  # type: ignore[attr-defined]
        said = limits.raise_open_files()
        assert made == ([expected] if expected else [])
        assert (said or "").startswith(problem or "") and bool(said) == bool(problem)


def test_a_refused_limit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (10, 100))  # type: ignore[attr-defined]
    monkeypatch.setattr(limits.resource, "setrlimit", refuse)  # type: ignore[attr-defined]
    assert "stays at 10 (not allowed)" in (limits.raise_open_files() or "")


def test_sockets_explain_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    with bind("127.0.0.1", 0) as sock:
        with pytest.raises(BusyPortError):
            bind("127.0.0.1", sock.getsockname()[1])
        handed_down = os.dup(sock.fileno())
        os.set_inheritable(handed_down, True)
        monkeypatch.setenv(LISTEN_FD_ENV, str(handed_down))
        with listener("ignored", 1) as inherited:
            assert inherited.getsockname() == sock.getsockname()
            assert LISTEN_FD_ENV not in os.environ and not inherited.get_inheritable()
    with bind("::1", 0) as sock:
        assert sock.family == socket.AF_INET6


FORWARDED: list[tuple[Any, bool]] = [
    (["10.0.0.1", " 10.1.0.0/16 "], True),
    (["::1"], True),
    (None, False),
    ([], False),
    (["*"], False),
    (["proxy.internal"], False),
    (["0.0.0.0/0"], False),
    (["::/0"], False),
    (["::ffff:0:0/95"], False),
]


@pytest.mark.parametrize(("addresses", "accepted"), FORWARDED)
def test_forwarded_headers_need_named_proxies(addresses: Any, accepted: bool) -> None:
    settings = {"uvicorn_proxy_headers": True, "uvicorn_forwarded_allow_ips": addresses}
    if not accepted:
        with pytest.raises(ValueError, match="uvicorn_forwarded_allow_ips"):
            UvicornProxyHeadersConfig.model_validate(settings)
        return
    checked = UvicornProxyHeadersConfig.model_validate(settings)
    assert checked.uvicorn_forwarded_allow_ips == [address.strip() for address in addresses]


async def test_answers_are_not_held_back_by_the_kernel() -> None:
    """Head and body of an answer are two writes: with Nagle's algorithm the second waits for the client, 40 ms."""
    seen: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None: ...

    class Noting(KeepaliveHttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            sock = transport.get_extra_info("socket")
            seen.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    settings = ServingOptions("127.0.0.1", 1).uvicorn_config(app)
    settings.load()
    loop, listening = asyncio.get_running_loop(), free_socket()

    def made() -> Noting:
        return Noting(settings, ServerState(), {}, _loop=loop, keepalive=(60, 10, 3))

    async with await loop.create_server(made, sock=listening) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read(1)
        writer.close()
    assert seen == [1]
