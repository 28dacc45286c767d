"""Ray only where something asks for it, with its address in the config for as long as the run lasts."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.instances import server_instances
from nemo_gym.launch import ray_cluster
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.plan import plan_servers
from tests.unit.launch import toys


class FakeRay:
    """Remembers how it was initialised."""

    def __init__(
        self,
        *,
        initialized: bool = False,
        error: Exception | None = None,
        initialising: Callable[[], object] | None = None,
    ) -> None:
        self.calls: list[Any] = []
        self._initialized = initialized
        self._error = error
        self._initialising = initialising

    def is_initialized(self) -> bool:
        return self._initialized

    def init(self, **options: Any) -> None:
        if self._error is not None:
            raise self._error
        if self._initialising is not None:
            self._initialising()
        self.calls.append(options)

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="10.0.0.1:6379")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(fake: FakeRay) -> FakeRay:
        monkeypatch.setattr(ray_cluster, "get_ray", lambda: fake)
        return fake

    return install


@contextmanager
def answering(text: bytes) -> Iterator[str]:
    """The address of something that gives everybody this answer."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(text)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def head() -> Iterator[str]:
    """The address of something that looks like a cluster's head: it answers as gRPC does."""
    with answering(b"\0\0\0\4\0\0\0\0\0") as address:
        yield address


@pytest.fixture(autouse=True)
def no_cluster_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


def note_of_ray(folder: Path, address: str) -> None:
    """What `ray start` leaves behind."""
    (folder / "ray").mkdir(exist_ok=True)
    (folder / "ray" / "ray_current_cluster").write_text(address)


def test_who_wants_ray(root: Path) -> None:
    """B110: Ray is no part of a run whose components don't ask for it."""
    toys.add_component(root, "plain")
    toys.add_component(root, "parallel", "class X:\n    ray_enabled = True\n")
    plain = plan_servers(server_instances(toys.config_for(root, "plain")))
    parallel = plan_servers(server_instances(toys.config_for(root, "parallel")))
    assert not ray_cluster.is_wanted(plain, OmegaConf.create({}))
    assert ray_cluster.is_wanted([*plain, *parallel], OmegaConf.create({}))
    assert ray_cluster.is_wanted(plain, OmegaConf.create({"ray_head_node_address": "auto"}))


def test_a_cluster_we_start_is_ended_and_forgotten(use: Any) -> None:
    ray, config = use(FakeRay()), OmegaConf.create({})
    leave = ray_cluster.connect(config)
    assert config.ray_head_node_address == "10.0.0.1:6379"
    leave()
    assert config.ray_head_node_address is None
    assert [call if call == "shutdown" else call["include_dashboard"] for call in ray.calls] == [False, "shutdown"]


def test_a_cluster_we_join_is_left_alone(use: Any, head: str) -> None:
    ray, config = use(FakeRay()), OmegaConf.create({"ray_head_node_address": head})
    leave = ray_cluster.connect(config)
    assert config.ray_head_node_address == "10.0.0.1:6379", "servers are told where it is"
    leave()
    assert config.ray_head_node_address == head
    assert [call["address"] for call in ray.calls] == [head]


def test_auto_is_the_cluster_that_was_started_here_last(use: Any, head: str, tmp_path: Path) -> None:
    note_of_ray(tmp_path, head)
    ray, config = use(FakeRay()), OmegaConf.create({"ray_head_node_address": "auto"})
    ray_cluster.connect(config)()
    assert config.ray_head_node_address == "auto"
    assert [call["address"] for call in ray.calls] == [head]


def test_a_job_s_cluster_is_that_of_the_job(use: Any, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", head)
    for address in ("auto", None):
        ray = use(FakeRay())
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": address}))()
        assert [call["address"] for call in ray.calls] == [head]


def test_a_run_that_names_none_gets_one_of_its_own(use: Any, head: str, tmp_path: Path) -> None:
    note_of_ray(tmp_path, head)
    ray = use(FakeRay())
    ray_cluster.connect(OmegaConf.create({}))()
    assert ray.calls[0]["address"] == "local" and ray.calls[0]["include_dashboard"] is False


def test_the_cluster_we_are_in_is_used(use: Any) -> None:
    ray = use(FakeRay(initialized=True))
    for address in (None, "gone:1"):
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": address}))()
    assert ray.calls == []


def test_a_cluster_that_cannot_be_joined_is_one_sentence(use: Any, head: str) -> None:
    use(FakeRay(error=ConnectionError("nobody\n  there")))
    with pytest.raises(LaunchError, match=rf"the cluster at {head} can't be joined \(nobody there\)"):
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": head}))


def test_a_cluster_of_another_version_is_refused_with_both(use: Any, head: str) -> None:
    use(
        FakeRay(
            error=RuntimeError(
                "Version mismatch: The cluster was started with:\n    Ray: 2.50.0\n    Python: 3.12.3\n"
                "This process on node 10.0.0.9 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
            )
        )
    )
    with pytest.raises(LaunchError) as caught:
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": head}))
    sentence = str(caught.value)
    assert f"The Ray cluster at {head} runs Ray 2.50.0 on Python 3.12.3, this installation Ray 2.60.0 on " in sentence
    assert "Python 3.11.7: both must be the same" in sentence and "\n" not in sentence


def test_nobody_waits_for_a_head_that_is_none(use: Any, tmp_path: Path) -> None:
    """Ray itself tries for minutes, and then ends the process."""
    ray = use(FakeRay())
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{unheard.getsockname()[1]}"
        with pytest.raises(LaunchError, match=rf"No Ray cluster answers at {closed} \(Connection refused\): give the"):
            ray_cluster.connect(OmegaConf.create({"ray_head_node_address": closed}))
        note_of_ray(tmp_path, closed)
        with pytest.raises(
            LaunchError, match=r"No Ray cluster runs on this machine: start one with `ray start --head`"
        ):
            ray_cluster.connect(OmegaConf.create({"ray_head_node_address": "auto"}))
    wanted = r"\(what answers there is something else\)"
    with answering(b"HTTP/1.0 400 Bad Request\r\n") as other, pytest.raises(LaunchError, match=wanted):
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": other}))
    assert ray.calls == []


def test_ray_s_signal_handlers_are_taken_back(use: Any, head: str) -> None:
    """With Ray's own a stop by TERM would be no orderly one."""

    def of_ray(*_: object) -> None:
        raise AssertionError

    def mine(*_: object) -> None:
        return

    before = signal.signal(signal.SIGTERM, mine)
    try:
        use(FakeRay(initialising=lambda: signal.signal(signal.SIGTERM, of_ray)))
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": head}))
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_auto_in_a_job_is_not_the_cluster_that_was_started_here_last(
    use: Any, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(b"\0\0\0\4\0\0\0\0\0") as last:
        note_of_ray(tmp_path, last)
        monkeypatch.setenv("RAY_ADDRESS", head)
        ray = use(FakeRay())
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": "auto"}))()
    assert [call["address"] for call in ray.calls] == [head]


@pytest.mark.parametrize("named", ["auto", "127.0.0.1", "localhost"])
def test_a_cluster_of_this_machine_gets_this_user_s_token(
    use: Any, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """`ray start` asks for the token as soon as there is one, and any local `ray.init` makes one."""
    asked: list[str] = []
    monkeypatch.setattr(ray_cluster, "_use_own_token", lambda: asked.append("token"))
    use(FakeRay())
    address = named if named == "auto" else head.replace("127.0.0.1", named)
    note_of_ray(tmp_path, head)
    ray_cluster.connect(OmegaConf.create({"ray_head_node_address": address}))()
    assert asked == ["token"]


@pytest.mark.parametrize("noted", [None, "127.0.0.1:9", "203.0.113.7:{port}"])
def test_no_other_address_gets_this_user_s_token(
    use: Any, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: str | None
) -> None:
    monkeypatch.setattr(ray_cluster, "_use_own_token", lambda: pytest.fail("a token for anybody"))
    use(FakeRay())
    if noted:
        note_of_ray(tmp_path, noted.format(port=head.rpartition(":")[2]))
    ray_cluster.connect(OmegaConf.create({"ray_head_node_address": head}))()


class AuthenticationError(Exception):
    """Named as Ray's."""


def _refused() -> ConnectionError:
    error = ConnectionError("Failed to connect to Ray cluster")
    error.__cause__ = RuntimeError("Last connection error: RPC error: InvalidAuthToken: token is missing or incorrect")
    return error


@pytest.mark.parametrize("error", [AuthenticationError("no token was found"), _refused()])
def test_a_cluster_that_asks_for_a_token_says_so(use: Any, head: str, error: Exception) -> None:
    use(FakeRay(error=error))
    with pytest.raises(LaunchError, match=rf"The Ray cluster at {head} asks for a token: export RAY_AUTH_MODE=token"):
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": head}))


@pytest.mark.parametrize(("mode", "told"), [(None, "token"), ("disabled", "disabled")])
def test_the_token_is_used_where_there_is_one_and_nobody_said_otherwise(
    tmp_path: Path, mode: str | None, told: str
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path), **({"RAY_AUTH_MODE": mode} if mode else {})}
    program = (
        "import os; from nemo_gym.launch.ray_cluster import _use_own_token; _use_own_token(); "
        "print(os.environ['RAY_AUTH_MODE'])"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == f"{told}\n", done.stderr
