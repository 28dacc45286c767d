"""The folder of a run, and finding the runs that are alive."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config.handover import read_token
from nemo_gym.launch.command_line import shown_command
from nemo_gym.launch.errors import LaunchError, RunNotFoundError
from nemo_gym.launch.linux import process_start
from nemo_gym.launch.logs import keep_in_bounds, open_log
from nemo_gym.launch.run_directory import RunDirectory, RunInfo, read_run, running, runs_folder, the_run
from nemo_gym.launch.stop import stop_run


def publish(port: int, *, pid: int | None = None, started: str | None = None) -> RunInfo:
    """A run file of this process, or of another one."""
    info = RunDirectory.create(port).publish("127.0.0.1", port, [], {})
    if pid is not None:
        path = info.directory / "run.json"
        content = json.loads(path.read_text()) | {"pid": pid, "started": started or process_start(pid)}
        path.write_text(json.dumps(content))
    found = read_run(info.directory)
    assert found is not None
    return found


def test_it_is_private_and_holds_a_token() -> None:
    directory = RunDirectory.create(11000)
    assert directory.path == runs_folder() / "11000"
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert len(read_token(directory.path) or "") == 64


def test_what_is_in_it_is_private_too() -> None:
    run = RunDirectory.create(7001)
    run.publish("127.0.0.1", 7001, [], {})
    (run.path / "logs/x.log").parent.mkdir(exist_ok=True)
    os.close(open_log(run.log_file("x")))
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.path.rglob("*") if path.is_file()}
    assert found == {"run.json": 0o600, "token": 0o600, "x.log": 0o600}
    assert keep_in_bounds(run.log_file("x"), longest=-1)
    assert stat.S_IMODE((run.path / "logs/x.log.1").stat().st_mode) == 0o600


def test_a_live_run_is_listed_until_its_folder_is_removed() -> None:
    info = publish(11000)
    assert running() == [info] == [the_run()] == [the_run(11000)]
    RunDirectory(info.directory).remove()
    assert running() == []
    assert not info.directory.exists()


def test_a_dead_run_is_cleared_away() -> None:
    dead = publish(11000, pid=os.getpid(), started="another time")
    assert not dead.is_alive
    assert running() == []
    assert not dead.directory.exists()


def test_a_new_run_takes_a_dead_ones_place_but_not_a_live_ones() -> None:
    publish(11000, pid=os.getpid(), started="another time")
    first = read_token(RunDirectory.create(11000).path)
    publish(11000, pid=os.getppid())
    with pytest.raises(LaunchError, match=rf"belongs to the run of pid {os.getppid()} "):
        RunDirectory.create(11000)
    assert read_token(runs_folder() / "11000") != first


def test_the_choice_between_several_runs_is_the_users() -> None:
    for port in (11000, 11001):
        publish(port)
    with pytest.raises(RunNotFoundError, match=r"choose one with --port") as raised:
        the_run(command="gym env stop")
    told = str(raised.value).splitlines()
    assert told[1].startswith(f"- port 11000 (pid {os.getpid()}, up ") and told[1].endswith(
        f": {shown_command(sys.argv)}"
    )
    assert [told[2].strip(), told[4].strip()] == [f"`gym env stop --port {port}`" for port in (11000, 11001)]
    assert the_run(11001).head_port == 11001
    with pytest.raises(RunNotFoundError, match="with head server port 12000 is alive"):
        the_run(12000)


def test_the_run_of_another_folder_is_meant_only_by_its_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another project's run must not be stopped by somebody who thinks of his own."""
    elsewhere = tmp_path / "theirs"
    elsewhere.mkdir()
    with monkeypatch.context() as patched:
        patched.chdir(elsewhere)
        info = publish(11000)
        assert the_run(command="gym env stop") == info
    with pytest.raises(RunNotFoundError, match="started in another folder") as raised:
        the_run(command="gym env logs policy_model")
    assert f", in {elsewhere}): " in str(raised.value)
    assert "`gym env logs policy_model --port 11000`" in str(raised.value)
    assert the_run(11000, command="gym env stop") == info
    assert the_run() == info, "to look at it does no harm"


def test_a_run_whose_folder_nobody_knows_is_meant_only_by_its_port() -> None:
    info = publish(11000)
    path = info.directory / "run.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "working_directory"}))
    with pytest.raises(RunNotFoundError, match="--port 11000"):
        the_run(command="gym env stop")


def test_no_run_is_one_sentence() -> None:
    with pytest.raises(RunNotFoundError, match="gym env start"):
        the_run()


def test_a_folder_of_something_else_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    with pytest.raises(LaunchError, match=r"holds things that are no run's \(thesis\.txt"):
        RunDirectory.create(11000)
    RunDirectory(tmp_path / "mine").remove()
    assert (tmp_path / "mine/thesis.txt").exists()


def test_a_named_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path / "mine"))
    assert publish(11000).directory == tmp_path / "mine"
    assert [info.directory for info in running()] == [tmp_path / "mine"]


def test_a_run_inside_a_server_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path / "outer"))
    monkeypatch.setenv("NEMO_GYM_CONFIG_PATH", "a_server")
    assert RunDirectory.create(11000).path == runs_folder() / "11000"


def test_an_unwritable_place_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(LaunchError, match=r"can't be made .* set NEMO_GYM_RUN_DIR"):
        RunDirectory.create(11000)


def test_a_full_disk_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nemo_gym.launch.run_directory.write_token", full)
    with pytest.raises(LaunchError, match="No space left on device"):
        RunDirectory.create(11000)
    assert list(runs_folder().iterdir()) == []


def test_a_log_has_its_servers_name(tmp_path: Path) -> None:
    directory = RunDirectory.create(11000)
    assert directory.log_file("a/b") == directory.path / "logs/a_b.log"
    assert directory.log_file("a", tmp_path) == tmp_path / "a.log"


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:1"), ("::1", "http://[::1]:1"), ("10.0.0.1", "http://10.0.0.1:1")],
)
def test_where_a_head_is_reached(host: str, url: str, tmp_path: Path) -> None:
    assert RunInfo(tmp_path, 1, "", host, 1, "").head_url == url


def test_secrets_of_the_command_line_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["gym", "env", "start", "+policy_api_key=abc", "--model-api-key", "def", "+x=http://u:ghi@h", "--json", "m"]
    monkeypatch.setattr(sys, "argv", argv)
    info = publish(11000)
    assert info.command == ("gym env start +policy_api_key=**** --model-api-key **** +x=http://****@h --json m")


SLEEPER = "import signal, sys\n{setup}\nprint('up', flush=True)\nsignal.pause()"


@pytest.fixture
def sleeper() -> Callable[[str], subprocess.Popen[str]]:
    def start(setup: str) -> subprocess.Popen[str]:
        code = SLEEPER.format(setup=setup)
        popen = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert popen.stdout is not None
        assert popen.stdout.readline() == "up\n"
        popen.stdout.close()
        return popen

    return start


def test_stopping_is_term_and_waits(sleeper: Callable[[str], subprocess.Popen[str]]) -> None:
    popen = sleeper("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))")
    info = publish(11000, pid=popen.pid)
    RunDirectory(info.directory).remove()
    assert stop_run(info, 20)
    assert popen.wait(20) == 0


def test_what_does_not_stop_is_killed(sleeper: Callable[[str], subprocess.Popen[str]]) -> None:
    popen = sleeper("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    info = publish(11000, pid=popen.pid)
    RunDirectory(info.directory).remove()
    assert not stop_run(info, 0.1)
    assert popen.wait(20) == -signal.SIGKILL


def test_a_run_that_has_ended_counts_as_stopped() -> None:
    info = publish(11000, pid=os.getpid(), started="another time")
    assert stop_run(info, 20)
