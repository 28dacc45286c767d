"""Whole runs with real processes: what is started, what is said, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym.config import ports
from nemo_gym.config.errors import ConfigError, NoServerInstancesError
from nemo_gym.config.handover import read_token
from nemo_gym.launch.errors import PortTakenError, ServerFailedError, ServersLateError
from nemo_gym.launch.fork_server import prestart
from nemo_gym.launch.interpreter import this_installation
from nemo_gym.launch.launch import Launch
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.run_directory import running, runs_folder
from nemo_gym.launch.signals import StopRequested
from nemo_gym.launch.sockets import listen
from nemo_gym.launch.venvs import VenvSettings, ensure_venv
from tests.unit.launch import toys
from tests.unit.launch.wheels import write_wheel

Until = Callable[[Callable[[], bool]], None]


@contextmanager
def started(config: DictConfig, **options: Any) -> Iterator[tuple[Launch, list[str]]]:
    """A running launch and the lines it wrote."""
    lines: list[str] = []
    launch = Launch(config, output=lines.append, **options)
    try:
        launch.start()
        yield launch, lines
    finally:
        launch.shutdown()


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as reply:
        return json.load(reply)


def head_url(config: DictConfig) -> str:
    return f"http://127.0.0.1:{config.head_server.port}"


@pytest.fixture
def one_toy(root: Path) -> DictConfig:
    toys.add_component(root, "alpha")
    return toys.config_for(root, "alpha")


def test_servers_start_serve_and_are_listed(root: Path) -> None:
    for name in ("alpha", "beta", "gamma"):
        toys.add_component(root, name)
    config = toys.config_for(root, "alpha", "beta", "gamma")
    with started(config) as (launch, lines):
        assert lines[:3] == [
            "[1] alpha (resources_servers/alpha)",
            "[2] beta (resources_servers/beta)",
            "[3] gamma (resources_servers/gamma)",
        ]
        assert "All 3 / 3 servers ready! Polling every 60s" in lines
        ports_of = {name: config[name].resources_servers[name].port for name in launch.processes}
        facts = {name: ask(f"http://127.0.0.1:{port}") for name, port in ports_of.items()}
        assert {name: fact["pid"] for name, fact in facts.items()} == {
            name: process.pid for name, process in launch.processes.items()
        }
        assert not any("ray" in fact["loaded"] for fact in facts.values())
        listed = ask(f"{head_url(config)}/server_instances")
        assert listed == launch.records
        keys = "config_path dir_path entrypoint host name pid port process_name server_type start_time status"
        assert list(listed[0]) == [*keys.split(), "uptime_seconds", "url"]
        assert ask(f"{head_url(config)}/readyz") == {"status": "ok"}


def test_a_server_is_told_its_part_and_nothing_secret_is_in_its_environment(root: Path) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha", policy_api_key="s3cret-value", later="${policy_api_key}")
    with started(config) as (launch, _):
        facts = ask(launch.records[0]["url"])
        assert facts["config"]["policy_api_key"] == "s3cret-value"
        assert facts["config"]["later"] == "${policy_api_key}"
        assert "s3cret-value" not in json.dumps(facts["environment"])
        assert facts["environment"]["NEMO_GYM_CONFIG_PATH"] == "alpha"
        config_file = Path(facts["environment"]["NEMO_GYM_CONFIG_FILE"])
        assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(config_file.parent.stat().st_mode) == 0o700


def test_the_head_tells_secrets_to_token_holders_only(root: Path) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha", policy_api_key="s3cret-value")
    url = f"{head_url(config)}/global_config_dict_yaml"
    with started(config):
        assert "policy_api_key: '****'" in ask(url)
        assert "s3cret-value" not in ask(url)
        token = read_token(running()[0].directory)
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=20) as reply:
            assert "policy_api_key: s3cret-value" in json.load(reply)


def test_a_forked_server_lives_in_its_overlay(one_toy: DictConfig, root: Path) -> None:
    with started(one_toy) as (launch, _):
        facts = ask(launch.records[0]["url"])
    venv = root / "venvs/resources_servers/alpha/.venv"
    assert facts["executable"] == str(venv / "bin/python")
    assert facts["prefix"] == facts["environment"]["VIRTUAL_ENV"] == str(venv)
    assert facts["environment"]["PATH"].split(":")[0] == str(venv / "bin")
    assert facts["path"][0] == facts["cwd"] == str(root / "resources_servers/alpha")
    assert facts["main"] == "__main__"


def test_a_relay_is_no_server(root: Path) -> None:
    toys.add_component(root, "my_agent", kind="responses_api_agents")
    port = toys.free_port()
    agent = {"responses_api_agents": {"my_agent": {"entrypoint": "app.py", "host": "127.0.0.1", "port": port}}}
    ref = {"type": "responses_api_agents", "name": "agent"}
    relay = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port, "agent_server": ref}
    fronting = {"environment_servers": {"legacy_agent": relay}}
    config = toys.config_for(root, agent=agent, agent_environment_server=fronting)
    with started(config) as (launch, lines):
        assert list(launch.processes) == ["agent"]
        assert lines[0] == "[1] agent (responses_api_agents/my_agent)"
        assert "All 1 / 1 servers ready! Polling every 60s" in lines
        assert [record["process_name"] for record in ask(f"{head_url(config)}/server_instances")] == ["agent"]


def test_nothing_to_start_is_one_sentence(root: Path) -> None:
    with pytest.raises(NoServerInstancesError, match="gym env start --resources-server"):
        Launch(toys.config_for(root), output=print).start()


def test_what_servers_write_is_in_their_log_and_shown_with_their_name(one_toy: DictConfig) -> None:
    console = io.StringIO()
    with started(one_toy, server_output=console):
        [info] = running()
        assert Path(info.logs["alpha"]).read_text() == "alpha serves\n"
    assert console.getvalue() == "(alpha) alpha serves\n"


def test_logs_are_kept_where_asked(root: Path, tmp_path: Path) -> None:
    toys.add_component(root, "alpha")
    kept = tmp_path / "my logs"
    with started(toys.config_for(root, "alpha", nemo_gym_log_dir=str(kept))):
        pass
    assert (kept / "alpha.log").read_text() == "alpha serves\n"


def test_the_run_is_found_while_it_lives_and_gone_after(one_toy: DictConfig) -> None:
    with started(one_toy) as (launch, _):
        [info] = running()
        assert info.pid == os.getpid()
        assert info.head_url == head_url(one_toy)
        assert info.servers == launch.records
    assert running() == []
    assert list(runs_folder().iterdir()) == []


def test_a_server_that_fails_to_start_ends_the_run_with_its_own_last_lines(root: Path) -> None:
    toys.add_component(root, "alpha")
    toys.add_component(root, "broken", toys.CRASHES)
    config = toys.config_for(root, "alpha", "broken", policy_api_key="s3cret-value")
    lines: list[str] = []
    launch = Launch(config, output=lines.append)
    with pytest.raises(ServerFailedError) as raised:
        launch.start()
    message = str(raised.value)
    assert message.startswith("Server broken (pid ")
    assert "exited with code 1 before it was asked to. Its last lines:" in message
    assert message.endswith("(broken) about to fail: the password is ****\n(broken) the toy is broken")
    assert "alpha" not in message
    assert not any("ready" in line for line in lines)
    assert raised.value.exit_code == 1
    assert running() == []


def test_late_servers_are_named_with_the_setting_to_raise(root: Path) -> None:
    toys.add_component(root, "alpha")
    toys.add_component(root, "slow", toys.NEVER_READY)
    config = toys.config_for(root, "alpha", "slow", server_spinup_timeout_seconds=1.5)
    with pytest.raises(ServersLateError) as raised:
        Launch(config, output=lambda _: None).start()
    assert "1 / 2 servers ready; waiting for slow (starting, pid " in str(raised.value)
    assert "+server_spinup_timeout_seconds=" in str(raised.value)


def test_a_death_is_noticed_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.launch.launch.LOOK_SECONDS", 3600)
    for name in ("alpha", "beta"):
        toys.add_component(root, name)
    with started(toys.config_for(root, "alpha", "beta")) as (launch, _):
        launch.poll()
        beta = launch.processes["beta"]
        threading.Timer(0.05, beta.kill).start()
        error = toys.raised_soon(launch.run_forever)
        assert isinstance(error, ServerFailedError)
        assert f"Server beta (pid {beta.pid}) was killed by SIGKILL" in str(error)
        assert launch.processes == {}
        assert beta.returncode == -signal.SIGKILL


def test_a_stop_signal_that_another_thread_gets_is_heard(one_toy: DictConfig) -> None:
    """Linux gives a signal to any thread that is ready for it, as after `kill -CONT`; only the main one can act."""
    with started(one_toy) as (launch, _):
        deliver = threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
        deliver.start()
        launch.run_forever()
        assert launch.processes == {}


def test_the_port_of_a_dead_server_refuses(root: Path) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha")
    with started(config) as (launch, _):
        launch.processes["alpha"].kill()
        launch.processes["alpha"].wait(20)
        with closing(socket.socket()) as client:
            assert client.connect_ex(("127.0.0.1", config.alpha.resources_servers.alpha.port)) != 0


def test_grandchildren_of_servers_end_with_the_run(root: Path, until: Until) -> None:
    toys.add_component(root, "alpha", toys.HAS_GRANDCHILD)
    with started(toys.config_for(root, "alpha")) as (launch, _):
        pid = launch.processes["alpha"].pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        until(lambda: len(children.read_text().split()) == 1)
        [grandchild] = children.read_text().split()
    until(lambda: not Path(f"/proc/{grandchild}").exists())


def test_a_stubborn_server_is_killed_and_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.launch.launch.STOP_GRACE_SECONDS", 0.2)
    toys.add_component(root, "alpha", toys.STUBBORN)
    with started(toys.config_for(root, "alpha")) as (launch, lines):
        launch.shutdown()
        assert lines[-2:] == [
            "Killed, since they didn't stop in time: alpha",
            "Finished: all servers have stopped.",
        ]
        launch.shutdown()
        assert lines[-1] == "Finished: all servers have stopped.", "a second shutdown does and says nothing"


def test_a_fixed_port_that_is_taken_is_named_with_its_holder(one_toy: DictConfig) -> None:
    port = one_toy.alpha.resources_servers.alpha.port
    with listen("127.0.0.1", port), pytest.raises(PortTakenError) as raised:
        Launch(one_toy, output=lambda _: None).start()
    assert f"Port {port} on 127.0.0.1, meant for alpha, is taken by pid {os.getpid()} (" in str(raised.value)
    assert "++alpha.resources_servers.alpha.port=<port>" in str(raised.value)


def test_a_head_port_that_is_taken_says_what_to_do(one_toy: DictConfig) -> None:
    with (
        listen("127.0.0.1", one_toy.head_server.port),
        pytest.raises(PortTakenError, match=r"meant for head_server, .* \+head_server\.port=<port>; .* `gym env stop`"),
    ):
        Launch(one_toy, output=lambda _: None).start()


def test_a_chosen_port_that_is_taken_is_chosen_again(one_toy: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    block = one_toy.alpha.resources_servers.alpha
    taken = block.port
    monkeypatch.setattr(ports, "chosen_ports", {taken})
    one_toy.disallowed_ports = [taken]
    with listen("127.0.0.1", taken), started(one_toy) as (launch, _):
        assert block.port == launch.records[0]["port"] != taken
        assert one_toy.disallowed_ports == [taken, block.port]
        assert ask(launch.records[0]["url"])["config"]["alpha"]["resources_servers"]["alpha"]["port"] == block.port


def test_a_port_that_composition_left_open_is_chosen(one_toy: DictConfig) -> None:
    one_toy.alpha.resources_servers.alpha.port = -1
    with started(one_toy) as (launch, _):
        assert one_toy.alpha.resources_servers.alpha.port == launch.records[0]["port"] > 0


def test_a_dry_run_constructs_and_listens_nowhere(one_toy: DictConfig) -> None:
    one_toy.dry_run = True
    console = io.StringIO()
    with (
        listen("127.0.0.1", one_toy.head_server.port),
        listen("127.0.0.1", one_toy.alpha.resources_servers.alpha.port),
        started(one_toy, server_output=console) as (launch, lines),
    ):
        assert launch.processes["alpha"].returncode == 0
        assert launch.head is None
        assert lines[-1] == "Dry run: all 1 / 1 servers were built."
        launch.run_forever()
    assert console.getvalue() == "(alpha) constructed\n"


def test_a_dry_run_names_the_server_that_fails(root: Path) -> None:
    toys.add_component(root, "alpha")
    toys.add_component(root, "broken", toys.CRASHES)
    config = toys.config_for(root, "alpha", "broken", dry_run=True)
    with pytest.raises(ServerFailedError, match=r"(?s)Server broken .* exited with code 1.*\(broken\) the toy is"):
        Launch(config, output=lambda _: None).start()


def test_an_unreachable_model_endpoint_ends_the_run(root: Path) -> None:
    toys.add_component(root, "a_model", kind="responses_api_models")
    url = f"http://127.0.0.1:{toys.free_port()}/v1"
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": toys.free_port(), "base_url": "${policy_base_url}"}
    model = {"responses_api_models": {"a_model": block}}
    config = toys.config_for(
        root, policy_model=model, policy_base_url=url, model_endpoint_readiness_timeout_seconds=0.2
    )
    lines: list[str] = []
    with pytest.raises(ConfigError) as raised:
        Launch(config, output=lines.append).start()
    assert f"{url} (from policy_model.responses_api_models.a_model.base_url)" in str(raised.value)
    assert any("1 / 1 servers ready" in line for line in lines), "the servers were ready before that wait"


def test_the_head_is_ready_only_after_the_model_endpoints(root: Path) -> None:
    toys.add_component(root, "a_model", kind="responses_api_models")
    seen: list[int] = []
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": toys.free_port()}
    config = toys.config_for(root, policy_model={"responses_api_models": {"a_model": block}})
    with closing(_Endpoint(f"{head_url(config)}/readyz", seen)) as endpoint:
        config.policy_model.responses_api_models.a_model.base_url = endpoint.url
        with started(config):
            assert seen == [503]
            assert ask(f"{head_url(config)}/readyz") == {"status": "ok"}


def test_a_prestarted_fork_server_is_used(one_toy: DictConfig) -> None:
    prestart()
    from nemo_gym.launch import fork_server

    [waiting] = fork_server._prestarted
    with started(one_toy) as (launch, _):
        assert launch._spawner is waiting


def test_it_works_in_a_thread(one_toy: DictConfig) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    outcome: list[Any] = []

    def run() -> None:
        with started(one_toy) as (launch, _):
            outcome.append(ask(launch.records[0]["url"])["pid"] == launch.processes["alpha"].pid)
            outcome.append(signal.getsignal(signal.SIGTERM) is handler)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert outcome == [True, True]


def test_a_foreign_venv_is_started_with_its_own_interpreter(one_toy: DictConfig, root: Path) -> None:
    venv = root / "venvs/resources_servers/alpha/.venv"
    make_foreign_venv(venv)
    with started(one_toy) as (launch, _):
        facts = ask(launch.records[0]["url"])
        assert facts["executable"] == str(venv / "bin/python")
        assert not {"uvicorn", "fastapi", "pydantic"} & set(facts["loaded"]), "a fork would have them"
        assert (facts["pid"], facts["group"]) == (launch.processes["alpha"].pid,) * 2


def make_foreign_venv(venv: Path) -> None:
    """As an image builder would: an interpreter, an activate script, and the base's packages through a .pth file."""
    from nemo_gym.launch.interpreter import this_installation
    from nemo_gym.launch.overlay import link_base, write_bare_venv

    write_bare_venv(venv, this_installation())
    link_base(venv, this_installation())


class _Endpoint:
    """A model endpoint that asks for `url` whenever it is asked itself."""

    def __init__(self, url: str, seen: list[int]) -> None:
        from http.server import BaseHTTPRequestHandler, HTTPServer

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    with urllib.request.urlopen(url, timeout=20) as reply:
                        seen.append(reply.status)
                except urllib.error.HTTPError as error:
                    seen.append(error.code)
                self.send_response(404)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_lines_of_an_earlier_run_are_not_the_culprits(root: Path, tmp_path: Path) -> None:
    toys.add_component(root, "broken", "raise SystemExit(3)")
    config = toys.config_for(root, "broken", nemo_gym_log_dir=str(tmp_path / "kept"))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/broken.log").write_text("from yesterday\n")
    with pytest.raises(ServerFailedError, match=r"exited with code 3 before it was asked to\. It wrote nothing\."):
        Launch(config, output=lambda _: None).start()


def test_the_fork_servers_death_is_not_blamed_on_a_server(one_toy: DictConfig) -> None:
    with started(one_toy) as (launch, _):
        process = launch.processes["alpha"]
        os.kill(int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        process.wait(20)
        with pytest.raises(ServerFailedError, match="went down with the process that starts servers"):
            launch.poll()


def test_an_overlay_whose_base_moved_still_finds_the_base(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha", skip_venv_if_present=True)
    ensure_venv(root / "resources_servers/alpha", VenvSettings.from_config(config))
    [link] = (root / "venvs/resources_servers/alpha/.venv").glob("lib/*/site-packages/*.pth")
    link.write_text("import site; site.addsitedir('/opt/old-place/site-packages')\n")
    with started(config) as (launch, _):
        facts = ask(launch.records[0]["url"])
    assert {str(folder) for folder in this_installation().site_directories} <= set(facts["path"])


def test_servers_that_bring_what_was_preloaded_are_executed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    write_wheel(tmp_path / "wheels", "tqdm", "4.68.9", code="SHADOW = True\n")
    report = 'print(f"{NAME} serves")'
    source = toys.SERVER.replace(report, f"import tqdm; print(tqdm.SHADOW); {report}")
    toys.add_component(root, "shadow", source, requirements="tqdm==4.68.9\n")
    toys.add_component(root, "plain")
    console = io.StringIO()
    preloads_tqdm = PreloadFacts(frozenset({"tqdm"}), frozenset())
    monkeypatch.setattr("nemo_gym.launch.fork_server.ForkServer.facts", lambda _: preloads_tqdm)
    with started(toys.config_for(root, "shadow", "plain"), server_output=console) as (launch, _):
        facts = {record["process_name"]: ask(record["url"]) for record in launch.records}
    assert "(shadow) True\n" in console.getvalue()
    assert "nemo_gym.launch.zygote" not in facts["shadow"]["modules"]
    assert "nemo_gym.launch.zygote" in facts["plain"]["modules"]


def test_an_interrupt_ends_a_build_at_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "uv"
    slow.write_text("#!/bin/sh\nkill -TERM $PPID_OF_TEST\nexec sleep 300\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PPID_OF_TEST", str(os.getpid()))
    monkeypatch.setattr("nemo_gym.launch.uv.find_uv", lambda: str(slow))
    toys.add_component(root, "needs", requirements="something\n")
    launch = Launch(toys.config_for(root, "needs"), output=lambda _: None)
    with pytest.raises(StopRequested):
        launch.start()
    assert list((root / "venvs/resources_servers/needs").iterdir()) == [
        root / "venvs/resources_servers/needs/.venv.setup.lock"
    ]


def test_a_run_gives_back_every_descriptor_and_thread(one_toy: DictConfig) -> None:
    def run() -> None:
        with started(one_toy):
            pass

    run()  # what is imported on the way may open things once
    before = (set(os.listdir("/proc/self/fd")), threading.active_count())  # noqa: PTH208
    run()
    assert (set(os.listdir("/proc/self/fd")), threading.active_count()) == before  # noqa: PTH208
