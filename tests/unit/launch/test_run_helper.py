"""`RunHelper`, as trainers and the command line drive it, and stopping by signals."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym import global_config
from nemo_gym.cli.run_helper import RunHelper
from nemo_gym.config.errors import NoServerInstancesError
from nemo_gym.global_config import GlobalConfigDictParserConfig
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.marker import MARKER_PREFIX
from nemo_gym.launch.run_directory import running, runs_folder
from nemo_gym.launch.signals import StopRequested, stop_signals
from nemo_gym.server_utils import ServerInstanceDisplayConfig
from tests.unit.launch import toys

Until = Callable[[Callable[[], bool]], None]


@pytest.fixture(autouse=True)
def no_config_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)


def parser_config(config: DictConfig) -> GlobalConfigDictParserConfig:
    return GlobalConfigDictParserConfig(
        initial_global_config_dict=config, skip_load_from_cli=True, skip_load_from_dotenv=True
    )


@pytest.fixture
def config(root: Path) -> DictConfig:
    toys.add_component(root, "alpha")
    toys.add_component(root, "beta")
    made = toys.config_for(root, "alpha", "beta")
    for name in ("alpha", "beta"):
        del made[name].resources_servers[name].port
    return made


@pytest.fixture
def helper() -> Iterator[RunHelper]:
    made = RunHelper(output=lambda _: None, server_output=None)
    yield made
    made.shutdown()


def test_a_trainer_sees_what_it_expects(config: DictConfig, helper: RunHelper) -> None:
    helper.start(global_config_dict_parser_config=parser_config(config))
    helper.poll()
    assert {name: process.poll() for name, process in helper._processes.items()} == {"alpha": None, "beta": None}
    first = helper._server_instance_display_configs[0]
    assert isinstance(first, ServerInstanceDisplayConfig)
    assert first.pid == helper._processes["alpha"].pid
    assert helper._server_client.head_server_config.port == config.head_server.port
    assert helper._head_server is not None
    assert helper._head_server_thread is not None
    assert helper._head_server_thread.is_alive()
    assert helper._head_server_instance is not None
    assert helper.check_http_server_statuses({"alpha"}) == [("beta", "success")]
    assert helper.check_http_server_statuses(set(), deadline=0.0) == []
    thread = helper._head_server_thread
    helper.shutdown()
    helper.shutdown()
    assert helper._processes == {}
    assert not thread.is_alive()


def test_addresses_of_servers_are_those_of_the_config(config: DictConfig, helper: RunHelper) -> None:
    helper.start(parser_config(config))
    composed = global_config.get_global_config_dict()
    for display in helper._server_instance_display_configs:
        name = str(display.process_name)
        block = composed[name].resources_servers[name]
        assert display.url == f"http://{block.host}:{block.port}"


def test_a_run_after_another_has_its_own_config(config: DictConfig, helper: RunHelper) -> None:
    helper.start(parser_config(config))
    helper.shutdown()
    other = RunHelper(output=lambda _: None, server_output=None)
    changed = OmegaConf.merge(config, {"policy_model_name": "another"})
    assert isinstance(changed, DictConfig)
    try:
        other.start(parser_config(changed))
        assert global_config.get_global_config_dict().policy_model_name == "another"
    finally:
        other.shutdown()


def test_so_has_a_run_after_one_that_could_not_start(root: Path, config: DictConfig, helper: RunHelper) -> None:
    toys.add_component(root, "broken", toys.CRASHES)
    with pytest.raises(RuntimeError):
        helper.start(parser_config(toys.config_for(root, "broken")))
    helper.start(parser_config(config))
    assert set(helper._processes) == {"alpha", "beta"}


def test_poll_names_the_dead_server(config: DictConfig, helper: RunHelper, until: Until) -> None:
    helper.start(parser_config(config))
    victim = helper._processes["beta"]
    victim.kill()
    victim.wait(20)
    with pytest.raises(RuntimeError, match="Server beta"):
        helper.poll()


def test_poll_notices_the_head_servers_end(config: DictConfig, helper: RunHelper) -> None:
    helper.start(parser_config(config))
    server, thread = helper._head_server, helper._head_server_thread
    assert server is not None
    assert thread is not None
    server.should_exit = True
    thread.join(20)
    with pytest.raises(RuntimeError, match="head server's thread"):
        helper.poll()


def test_a_failed_start_cleans_up_and_raises(root: Path, helper: RunHelper) -> None:
    toys.add_component(root, "broken", toys.CRASHES)
    with pytest.raises(RuntimeError, match="the toy is broken"):
        helper.start(parser_config(toys.config_for(root, "broken")))
    assert helper._processes == {}
    assert running() == []


def test_nothing_to_start_is_a_config_error(root: Path, helper: RunHelper) -> None:
    with pytest.raises(NoServerInstancesError):
        helper.start(parser_config(toys.config_for(root)))


def test_before_start_there_is_nothing(helper: RunHelper) -> None:
    helper.poll()
    helper.shutdown()
    helper.run_forever()
    assert helper._processes == {}
    with pytest.raises(LaunchError, match="call start"):
        helper.display_server_instance_info()


def test_a_dry_run_returns(root: Path, helper: RunHelper) -> None:
    toys.add_component(root, "alpha")
    helper.start(parser_config(toys.config_for(root, "alpha", dry_run=True)))
    helper.run_forever()
    assert helper._processes == {}


def test_everything_is_printed_by_default(config: DictConfig, capsys: pytest.CaptureFixture[str]) -> None:
    helper = RunHelper(server_output=io.StringIO())
    helper.start(parser_config(config))
    helper.shutdown()
    out = capsys.readouterr().out
    assert "[2] beta (resources_servers/beta)\n" in out
    assert "All 2 / 2 servers ready! Polling every 60s\n" in out
    assert "\n    process_name: beta\n" in out and "{" not in out
    assert "Finished: all servers have stopped." in out


# --- signals ---


@pytest.fixture
def usual_handlers() -> Iterator[None]:
    """As in a shell, however these tests were started themselves."""
    usual: dict[signal.Signals, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_handlers")
def test_signals_ask_for_an_orderly_stop() -> None:
    before = signal.getsignal(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with pytest.raises(StopRequested) as raised, stop_signals():
            signal.raise_signal(number)
        assert raised.value.signum == number
        assert isinstance(raised.value, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGTERM) is before


def test_somebody_elses_handler_stays() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with stop_signals():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_an_ignored_interrupt_is_heard_again_but_not_an_ignored_hangup() -> None:
    befores = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        with stop_signals():
            signal.raise_signal(signal.SIGHUP)
        with pytest.raises(StopRequested), stop_signals():
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in befores.items():
            signal.signal(number, handler)


def test_a_blocked_interrupt_is_heard_again() -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with pytest.raises(StopRequested), stop_signals():
            signal.raise_signal(signal.SIGINT)
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_outside_the_main_thread_no_handler_is_set() -> None:
    seen: list[bool] = []
    before = signal.getsignal(signal.SIGTERM)

    def look() -> None:
        with stop_signals():
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [True]


PROGRAM = """
import signal, sys
from nemo_gym.launch import fork_server
from omegaconf import OmegaConf
from nemo_gym.cli.run_helper import RunHelper
from nemo_gym.global_config import GlobalConfigDictParserConfig

signal.signal(signal.SIGHUP, signal.SIG_DFL)
fork_server.PRELOADING_ROOM = "nemo_gym.errors"
config = OmegaConf.load(sys.argv[1])
RunHelper().run(GlobalConfigDictParserConfig(
    initial_global_config_dict=config, skip_load_from_cli=True, skip_load_from_dotenv=True))
"""


@pytest.fixture
def program(config: DictConfig, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher process whose servers are ready."""
    OmegaConf.save(config, tmp_path / "config.yaml")
    popen = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "config.yaml")], stdout=subprocess.PIPE, text=True
    )
    assert popen.stdout is not None
    for line in popen.stdout:
        if line.startswith("All 2 / 2 servers ready!"):
            break
    yield popen
    popen.kill()
    popen.stdout.close()
    popen.wait()


def server_pids(info_config: DictConfig) -> list[int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{info_config.head_server.port}/server_instances") as reply:
        return [record["pid"] for record in json.load(reply)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_stops_a_run_in_order(
    program: subprocess.Popen[str], config: DictConfig, number: signal.Signals
) -> None:
    pids = server_pids(config)
    program.send_signal(number)
    assert program.wait(20) == 0
    assert program.stdout is not None
    assert "Finished: all servers have stopped." in program.stdout.read()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert list(runs_folder().iterdir()) == []


def test_kill_9_of_the_launcher_leaves_nothing(
    program: subprocess.Popen[str], config: DictConfig, until: Until
) -> None:
    pids = server_pids(config)
    program.kill()
    program.wait(20)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    until(lambda: not any(runs_folder().iterdir()))
    assert MARKER_PREFIX not in "".join(os.environ)


def test_a_death_ends_the_program_with_an_error(program: subprocess.Popen[str], config: DictConfig) -> None:
    os.kill(server_pids(config)[0], signal.SIGKILL)
    assert program.wait(20) == 1


def test_a_start_without_servers_leaves_no_process(root: Path, helper: RunHelper) -> None:
    """What was started ahead of the config has nothing to do."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(NoServerInstancesError):
        helper.start(parser_config(toys.config_for(root)))
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
