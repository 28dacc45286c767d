"""Where the head server is said to be, and which run a command means."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.cli.runs import head_address
from nemo_gym.errors import UsageError
from nemo_gym.launch.linux import process_start
from nemo_gym.launch.run_directory import RunInfo
from tests.unit.cli.conftest import Gym


@pytest.fixture
def env_file(gym: Gym, tmp_path: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        (tmp_path / "env.yaml").write_text(text)

    return write


def test_the_default_address(env_file: Callable[[str], None]) -> None:
    assert head_address([]).url == "http://127.0.0.1:11000"


def test_env_yaml_names_the_address_and_overrides_change_it(env_file: Callable[[str], None]) -> None:
    env_file("head_server: {host: 10.0.0.7, port: 12000}\n")
    assert head_address([]).url == "http://10.0.0.7:12000"
    assert head_address(["+head_server.port=13000", "+json=true"]).url == "http://10.0.0.7:13000"
    assert head_address(["++head_server.host=localhost"]).url == "http://localhost:12000"


def test_a_server_bound_to_every_address_is_called_at_the_loopback_one() -> None:
    assert head_address(["+head_server.host=0.0.0.0", "+head_server.port=5"]).url == "http://127.0.0.1:5"


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_a_port_must_be_one(env_file: Callable[[str], None], port: str) -> None:
    with pytest.raises(UsageError, match="port"):
        head_address([f"+head_server.port={port}"])


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("head_server: {port: '${oc.env:NO_SUCH_VARIABLE,12345}'}\n", []),
        ("port: 12345\nhead_server: {port: '${port}'}\n", []),
        ("default_host: 127.0.0.1\nhead_server: {port: 12345}\n", []),
        ("", ["+port=12345", "+head_server.port=${port}"]),
    ],
)
def test_what_only_the_config_parser_understands_is_left_to_it(
    env_file: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, text: str, overrides: list[str]
) -> None:
    env_file(text)
    monkeypatch.setattr("sys.argv", ["gym", *overrides])
    monkeypatch.setattr("nemo_gym.global_config._GLOBAL_CONFIG_DICT", None)
    assert head_address().port == 12345


@pytest.fixture
def alive(tmp_path: Path, gym: Gym) -> Callable[..., None]:
    """Record a run of this very process, started here or in another folder."""

    def record(port: int, folder: str = "") -> None:
        directory = tmp_path / "runs" / f"nemo-gym-{os.getuid()}" / str(port)
        directory.mkdir(parents=True)
        log = directory / "judge.log"
        log.write_text("(judge) hello\n(judge) bye\n")
        content = {
            "directory": str(directory),
            "pid": os.getpid(),
            "started": process_start(os.getpid()),
            "head_host": "127.0.0.1",
            "head_port": port,
            "command": "gym env start",
            "servers": [],
            "logs": {"judge": str(log)},
            "working_directory": str(folder or Path.cwd()),
        }
        (directory / "run.json").write_text(json.dumps(content))

    return record


def test_stop_ends_the_only_run(gym: Gym, alive: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []

    def stop(info: RunInfo) -> bool:
        stopped.append(info.head_port)
        return info.head_port != 11002

    monkeypatch.setattr("nemo_gym.launch.stop.stop_run", stop)
    assert gym("env", "stop").code == 1
    alive(11001)
    ended = gym("env", "stop")
    assert (ended.code, stopped) == (0, [11001])
    alive(11002)
    assert gym("env", "stop").code == 1
    killed = gym("env", "stop", "--port", "11002")
    assert "had to be killed" in killed.out
    assert gym("env", "stop", "+head_server.port=11001").code == 0
    assert gym("env", "stop", "--all").code == 0
    assert stopped == [11001, 11002, 11001, 11001, 11002]


def test_another_projects_run_is_neither_stopped_nor_read(
    gym: Gym, alive: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int] = []

    def stop(info: RunInfo) -> bool:
        stopped.append(info.head_port)
        return True

    monkeypatch.setattr("nemo_gym.launch.stop.stop_run", stop)
    alive(11001, "/data/theirs")
    for words in (("env", "stop"), ("env", "logs", "judge"), ("env", "restart", "judge")):
        ended = gym(*words)
        assert ended.code == 1 and stopped == [] and ended.out == ""
        assert "in /data/theirs): gym env start" in ended.err and f"`gym {' '.join(words)} --port 11001`" in ended.err
    ended = gym("env", "stop", "--port", "11001")
    assert ended.code == 0 and stopped == [11001]
    assert "Stopping the run at port 11001 (pid " in ended.out and "in /data/theirs): gym env start" in ended.out


def test_stopping_servers_that_are_collected_from_says_what_resuming_takes(
    gym: Gym, alive: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nemo_gym.launch.stop.stop_run", lambda info: True)
    alive(11001)
    for pids, said in (([], False), ([os.getpid()], False), ([os.getpid(), 77], True)):
        monkeypatch.setattr("nemo_gym.launch.stop.collectors_of", lambda info, pids=pids: pids)
        assert ("(pid 77): start the servers again before that is resumed" in gym("env", "stop").out) is said


def test_stop_refuses_what_it_would_not_heed(gym: Gym) -> None:
    assert gym("env", "stop", "--all", "--port", "1").code == 2
    ended = gym("env", "stop", "+config_paths=[a.yaml]")
    assert ended.code == 2 and "head_server.port" in ended.err


def test_logs_are_printed_by_name(gym: Gym, alive: Callable[..., None]) -> None:
    alive(11001)
    assert gym("env", "logs", "judge").out == "(judge) hello\n(judge) bye\n"
    nameless = gym("env", "logs")
    assert nameless.code == 2 and "judge" in nameless.err


def test_status_names_runs_at_other_ports(gym: Gym, alive: Callable[..., None]) -> None:
    alive(11001)
    ended = gym("env", "status", "--json", "+head_server.port=9")
    assert (ended.code, json.loads(ended.out)) == (0, [])
    assert "+head_server.port=11001`" in ended.err and "port 11001 (pid " in ended.err
