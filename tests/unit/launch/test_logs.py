"""Logs: shown, followed, quoted and kept in bounds."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.launch.errors import LaunchError, RunNotFoundError
from nemo_gym.launch.linux import process_start
from nemo_gym.launch.logs import LogConsole, follow, keep_in_bounds, open_log, tail
from nemo_gym.launch.run_directory import RunInfo


def run_with(log: Path, *, alive: bool = False) -> RunInfo:
    started = process_start(os.getpid()) if alive else "another time"
    return RunInfo(log.parent, os.getpid(), started or "", "127.0.0.1", 11000, "", [], {"mcqa": str(log)})


def test_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(20000)))
    assert tail(log, 2) == ["line 19998", "line 19999"]
    assert tail(tmp_path / "missing.log") == []
    assert tail(log, since=log.stat().st_size) == []
    assert tail(log, 1, since=log.stat().st_size + 1) == ["line 19999"], "it was emptied and has grown since"


def test_a_whole_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"one\ntwo \xff\nunfinished")
    assert list(follow(run_with(log), "mcqa", False)) == ["one", "two \ufffd", "unfinished"]


def test_following_ends_with_the_run(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\n")
    lines = follow(run_with(log, alive=True), "mcqa", True)
    assert next(lines) == "one"
    with log.open("a") as file:
        file.write("two\n")
    assert next(lines) == "two"
    log.write_text("")
    lines.close()  # type: ignore[attr-defined]
    assert list(follow(run_with(log), "mcqa", True)) == []


def test_an_unknown_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match=r"no server `mcqaa`\. Did you mean `mcqa`\? It has: mcqa"):
        follow(run_with(tmp_path / "x.log"), "mcqaa", False)


def test_the_console_names_the_server_once(tmp_path: Path, until: Callable[[Callable[[], bool]], None]) -> None:
    logs = {"a": tmp_path / "a.log", "b": tmp_path / "b.log"}
    logs["a"].write_text("from an earlier run\n")
    stream = io.StringIO()
    console = LogConsole(logs, stream)
    console.start()
    with logs["a"].open("a") as file:
        file.write("plain\n(a) already named\nunfini")
    until(lambda: "already" in stream.getvalue())
    assert stream.getvalue() == "(a) plain\n(a) already named\n"
    with logs["a"].open("a") as file:
        file.write("shed\n")
    logs["b"].write_text("last words")
    console.stop()
    assert stream.getvalue().splitlines()[2:] == ["(a) unfinished", "(b) last words"]


def test_the_console_goes_on_in_an_emptied_log(tmp_path: Path, until: Callable[[Callable[[], bool]], None]) -> None:
    log = tmp_path / "a.log"
    fd = open_log(log)
    stream = io.StringIO()
    console = LogConsole({"a": log}, stream, longest=100)
    console.start()
    os.write(fd, b"long " * 30 + b"\n")
    until(lambda: (tmp_path / "a.log.1").exists() and log.stat().st_size == 0)
    os.write(fd, b"short\n")
    os.close(fd)
    console.stop()
    assert stream.getvalue().splitlines()[-1] == "(a) short"


def test_a_closed_console_harms_nobody(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("")
    stream = io.StringIO()
    stream.close()
    console = LogConsole({"a": log}, stream)
    console.start()
    log.write_text("line\n")
    console.stop()


def test_an_overlong_log_is_moved_aside_under_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    fd = open_log(path)
    os.write(fd, b"old " * 30)
    assert keep_in_bounds(path, 100)
    assert not keep_in_bounds(path, 100)
    os.write(fd, b"new")
    os.close(fd)
    assert path.read_bytes() == b"new"
    assert (tmp_path / "a.log.1").read_bytes() == b"old " * 30


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError, match=r"The log file .* can't be written .* \+nemo_gym_log_dir"):
        open_log(tmp_path / "file/x.log")
