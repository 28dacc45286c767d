"""The script that ends a command with everything it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from nemo_gym.sandbox import process_supervisor


def supervise(tmp_path: Path, command: str, *options: str) -> tuple[int, dict[str, Any]]:
    process = start(tmp_path, command, *options)
    code = process.wait(60)
    return code, receipt(tmp_path)


def start(tmp_path: Path, command: str, *options: str) -> subprocess.Popen[bytes]:
    arguments = ["--timeout", "30", "--cleanup-timeout", "0.5", "--receipt", str(tmp_path / "receipt"), *options]
    argv = [sys.executable, "-I", "-S", process_supervisor.__file__, *arguments, "--", "sh", "-c", command]
    return subprocess.Popen(argv, cwd=tmp_path)


def receipt(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "receipt").read_text())
    return content


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_the_code_of_the_command_is_in_the_receipt(tmp_path: Path) -> None:
    code, receipt = supervise(tmp_path, "exit 7")
    assert (code, receipt) == (0, {"cleanup_confirmed": True, "return_code": 7, "error": None, "timed_out": False})
    assert [path.name for path in tmp_path.iterdir()] == ["receipt"]


def test_time_is_limited(tmp_path: Path) -> None:
    code, receipt = supervise(tmp_path, "exec sleep 300", "--timeout", "0.3")
    expected = {"cleanup_confirmed": True, "return_code": -signal.SIGTERM, "error": None, "timed_out": True}
    assert (code, receipt) == (0, expected)


def test_who_ignores_being_asked_is_killed(tmp_path: Path) -> None:
    _, receipt = supervise(tmp_path, "trap '' TERM; while :; do sleep 1; done", "--timeout", "0.3")
    assert (receipt["return_code"], receipt["cleanup_confirmed"]) == (-signal.SIGKILL, True)


def test_daemons_are_ended_though_they_left_session_group_and_parent(tmp_path: Path) -> None:
    command = "env -i setsid sh -c '(echo $$; exec sleep 300) > pid & ' & wait; while [ ! -s pid ]; do :; done"
    code, receipt = supervise(tmp_path, command)
    assert (code, receipt["return_code"]) == (0, 0)
    daemons = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path)]
    assert daemons == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command(tmp_path: Path, number: int) -> None:
    os.mkfifo(tmp_path / "pid")
    process = start(tmp_path, "echo $$ > pid; exec sleep 300")
    pid = int((tmp_path / "pid").read_text())
    process.send_signal(number)
    assert process.wait(60) == 0
    assert not is_alive(pid)
    assert receipt(tmp_path)["timed_out"] is False


def test_a_stop_file_ends_the_command(tmp_path: Path) -> None:
    code, receipt = supervise(tmp_path, "touch stop; exec sleep 300", "--stop-file", str(tmp_path / "stop"))
    assert (code, receipt["cleanup_confirmed"], receipt["timed_out"]) == (0, True, False)


def test_a_command_that_is_not_there_is_in_the_receipt(tmp_path: Path) -> None:
    argv = ["--timeout", "5", "--receipt", str(tmp_path / "receipt"), "--", "/not/there"]
    done = subprocess.run([sys.executable, process_supervisor.__file__, *argv], check=False)
    assert done.returncode == 1
    assert "/not/there" in receipt(tmp_path)["error"]


def test_it_imports_only_the_standard_library(tmp_path: Path) -> None:
    text = Path(process_supervisor.__file__).read_text(encoding="utf-8")
    assert "nemo_gym" not in text


def test_the_time_it_may_take_covers_its_cleaning_up() -> None:
    assert process_supervisor.DEFAULT_CLEANUP_TIMEOUT == 10.0
    assert process_supervisor.exec_timeout(timeout=100) == 160
    assert process_supervisor.exec_timeout(timeout=100, cleanup_timeout=5) == 145
