"""What shells and other commands use: set-up text, prefetch, detached runs, status, and starting without forks."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.cli.setup_command import get_venv_path, run_command, setup_env_command
from nemo_gym.config.errors import NoServerInstancesError
from nemo_gym.launch import detach, fork_server
from nemo_gym.launch.direct import DirectSpawner
from nemo_gym.launch.launch import Launch
from nemo_gym.launch.prefetch import prefetch
from nemo_gym.launch.run_directory import runs_folder, the_run
from nemo_gym.launch.stop import stop_run
from nemo_gym.server_status import StatusCommand
from tests.unit.launch import toys
from tests.unit.launch.wheels import write_wheel

# --- set-up text ---


def test_set_up_text_builds_and_activates(root: Path) -> None:
    folder = toys.add_component(root, "it's a toy")
    config = toys.config_for(root)
    text = setup_env_command(folder, config, "toy")
    done = subprocess.run(["bash", "-c", f"{text} && pwd && which python"], capture_output=True, text=True, check=True)
    venv = get_venv_path(folder, config)
    assert done.stdout.splitlines() == [str(folder), str(venv / "bin/python")]
    assert venv == root / "venvs/resources_servers/it's a toy/.venv"


def test_set_up_text_fails_with_the_venv(root: Path) -> None:
    folder = toys.add_component(root, "toy")
    (folder / "requirements.txt").unlink()
    text = setup_env_command(folder, toys.config_for(root), "toy")
    done = subprocess.run(["bash", "-c", f"{text} && echo not reached"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"(toy) Error: {folder} has no requirements.txt")


def test_a_command_sees_the_servers_folder(tmp_path: Path) -> None:
    config = OmegaConf.create({"uv_cache_dir": "/cache", "uv_lock_timeout_seconds": 7})
    popen = run_command(
        "echo $PYTHONPATH $UV_CACHE_DIR $UV_LOCK_TIMEOUT $EXTRA; pwd",
        tmp_path,
        project_root=tmp_path / "project",
        global_config_dict=config,
        stdout_target=subprocess.PIPE,
        extra_env={"EXTRA": "more"},
    )
    out, _ = popen.communicate()
    words = out.decode().split()
    assert words[0].split(":")[:2] == [str(tmp_path), str(tmp_path / "project")]
    assert words[1:] == ["/cache", "7", "more", str(tmp_path)]


def test_the_old_home_still_works() -> None:
    old = importlib.import_module("nemo_gym.cli_setup_command")
    with pytest.warns(DeprecationWarning, match=r"nemo_gym\.cli\.setup_command"):
        assert old.run_command is run_command


# --- prefetch ---


def test_prefetch_builds_every_venv_once_and_starts_nothing(root: Path) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha")
    config.twin = config.alpha
    lines: list[str] = []
    prefetch(config, output=lines.append)
    venv = root / "venvs/resources_servers/alpha/.venv"
    assert lines == [f"(resources_servers/alpha) {venv} is ready."]
    assert (venv / "bin/python").exists()


def test_prefetch_compiles(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    write_wheel(tmp_path / "wheels", "tinyextra", "1.0")
    toys.add_component(root, "alpha", requirements="tinyextra\n")
    prefetch(toys.config_for(root, "alpha"), output=lambda _: None)
    assert list((root / "venvs/resources_servers/alpha/.venv").glob("lib/*/site-packages/tinyextra/__pycache__/*.pyc"))


def test_prefetching_nothing_is_an_error(root: Path) -> None:
    with pytest.raises(NoServerInstancesError):
        prefetch(toys.config_for(root))


# --- status ---


def test_status_of_a_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha")
    launch = Launch(config, output=lambda _: None)
    try:
        launch.start()
        command = StatusCommand(f"http://127.0.0.1:{config.head_server.port}")
        [server] = command.discover_servers()
        assert server["status"] == command.check_health(server) == "success"
        assert server["uptime_seconds"] >= 0
        command.display_status([server], as_json=True)
        [shown] = json.loads(capsys.readouterr().out)
        assert (shown["process_name"], shown["config_path"], shown["start_time"]) == ("alpha", None, None)
        command.display_status([server])
        assert "[1] ✓ alpha (resources_servers/alpha)" in capsys.readouterr().out
    finally:
        launch.shutdown()


def test_status_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    command = StatusCommand(f"http://127.0.0.1:{toys.free_port()}")
    command.display_status(command.discover_servers())
    command.display_status([], as_json=True)
    captured = capsys.readouterr()
    assert captured.out == "No NeMo Gym servers found.\n[]\n"
    assert "no head server answers" in captured.err


# --- in the background ---

BACKGROUND = """
import json, os, sys
from nemo_gym.launch import fork_server
from omegaconf import OmegaConf
from nemo_gym.cli.run_helper import RunHelper
from nemo_gym.errors import GymError
from nemo_gym.global_config import GlobalConfigDictParserConfig

fork_server.PRELOADING_ROOM = "nemo_gym.errors"
config = OmegaConf.load(sys.argv[1])
try:
    RunHelper().run(GlobalConfigDictParserConfig(
        initial_global_config_dict=config, skip_load_from_cli=True, skip_load_from_dotenv=True))
except GymError as error:
    print(error)
    raise SystemExit(error.exit_code)
"""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(detach, "_MAIN", BACKGROUND.replace("sys.argv[1]", "json.load(os.fdopen({fd}))[0]"))
    return []


def test_a_detached_run_returns_when_ready(root: Path, tmp_path: Path, shown: list[str]) -> None:
    toys.add_component(root, "alpha")
    OmegaConf.save(toys.config_for(root, "alpha"), tmp_path / "config.yaml")
    assert detach.detach([str(tmp_path / "config.yaml")], write=shown.append) == 0
    info = the_run()
    try:
        text = "".join(shown)
        assert "All 1 / 1 servers ready!" in text
        where = f"at port {info.head_port} (pid {info.pid}). Stop it with `gym env stop --port {info.head_port}`."
        assert f"Running in the background {where}\n" in text
        assert (info.directory / "launcher.log").exists()
        assert os.getsid(info.pid) == info.pid
        with urllib.request.urlopen(info.servers[0]["url"]) as reply:
            assert not [name for name in json.load(reply)["environment"] if "DETACHED" in name]
    finally:
        assert stop_run(info, 20)
        os.waitpid(info.pid, 0)
    assert list(runs_folder().iterdir()) == []


def test_a_detached_run_that_fails_returns_its_code(root: Path, tmp_path: Path, shown: list[str]) -> None:
    toys.add_component(root, "broken", toys.CRASHES)
    OmegaConf.save(toys.config_for(root, "broken"), tmp_path / "config.yaml")
    assert detach.detach([str(tmp_path / "config.yaml")], write=shown.append) == 1
    assert "(broken) the toy is broken" in "".join(shown)
    assert list(runs_folder().iterdir()) == []


# --- without forks ---


def test_without_forks_servers_are_executed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "IS_LINUX", False)
    toys.add_component(root, "alpha", toys.HAS_GRANDCHILD)
    launch = Launch(toys.config_for(root, "alpha"), output=lambda _: None)
    try:
        launch.start()
        assert isinstance(launch._spawner, DirectSpawner)
        process = launch.processes["alpha"]
        assert os.getpgid(process.pid) == process.pid
    finally:
        launch.shutdown()
    assert process.returncode == -signal.SIGTERM
    _end_stray_sleepers(root)


def test_without_forks_servers_end_with_their_launcher(root: Path, tmp_path: Path, until: Any) -> None:
    toys.add_component(root, "alpha")
    OmegaConf.save(toys.config_for(root, "alpha"), tmp_path / "config.yaml")
    code = BACKGROUND.replace("config = ", "fork_server.IS_LINUX = False\nconfig = ", 1)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "config.yaml")], stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None
        for line in popen.stdout:
            if line.startswith(b"All 1 / 1"):
                break
        [record] = the_run().servers
        popen.kill()
    until(lambda: not Path(f"/proc/{record['pid']}").exists())


def _end_stray_sleepers(root: Path) -> None:
    """Elsewhere than on Linux nothing finds a grandchild that made its own session; here we end it ourselves."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                mine = str(root).encode() in (folder / "environ").read_bytes()
                if mine and (folder / "comm").read_text() == "sleep\n":
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue


def test_importing_the_room_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module("nemo_gym.launch.launch")
