"""One line there, one line back, between processes of one user."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from nemo_gym.config.handover import RUN_DIR_ENV
from nemo_gym.serve import control_socket, in_flight_socket
from nemo_gym.serve.control_socket import (
    NoAnswerError,
    RefusedError,
    answer_line,
    ask,
    listen,
    serve_on,
    serve_one,
    unknown_operation,
)


def answer(op: str, arguments: Mapping[str, Any]) -> Any:
    if op == "double":
        return {"doubled": 2 * arguments["number"]}
    raise unknown_operation(op, ["double"])


@contextmanager
def answering(folder: Path, name: str = "a.sock") -> Iterator[None]:
    bound = listen(folder, name)
    thread = threading.Thread(target=serve_one, args=(bound, answer), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)
        bound.close()


def test_a_question_is_answered(tmp_path: Path) -> None:
    with answering(tmp_path):
        assert ask(tmp_path, "a.sock", "double", number=21, seconds=20) == {"doubled": 42}


async def test_an_event_loop_answers_too(tmp_path: Path) -> None:
    server = await serve_on(listen(tmp_path, "a.sock"), answer)
    assert await asyncio.to_thread(ask, tmp_path, "a.sock", "double", number=4, seconds=20.0) == {"doubled": 8}
    server.close()


def test_only_this_user_may_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listen(tmp_path, "a.sock").close()
    assert stat.S_IMODE((tmp_path / "a.sock").stat().st_mode) == 0o600
    near, far = socket.socketpair()
    with near, far:
        assert control_socket.is_own_peer(near)
        monkeypatch.setattr("os.getuid", lambda: 1 + 2**20)
        assert control_socket.is_own_peer(near) is (os.geteuid() == 0)


def test_a_folder_with_a_long_name_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    with answering(folder):
        assert ask(folder, "a.sock", "double", number=1, seconds=20) == {"doubled": 2}


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_nor_is_it_for_an_event_loop(tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The number under which the folder was open may be something else's when the loop begins."""
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)

    async def exchange() -> Any:
        bound = listen(folder, "a.sock")
        with Path(os.devnull).open():
            server = await serve_on(bound, answer)
        said = await asyncio.to_thread(ask, folder, "a.sock", "double", number=4, seconds=20.0)
        server.close()
        return said

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(exchange()) == {"doubled": 8}


async def test_a_server_whose_table_cannot_be_asked_says_so_and_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(*_: object) -> None:
        raise NotADirectoryError("no such place")

    (tmp_path / "tables").mkdir()
    monkeypatch.setenv(RUN_DIR_ENV, str(tmp_path))
    monkeypatch.setattr(in_flight_socket, "serve_on", fail)
    monkeypatch.setattr(in_flight_socket, "watch_loop_lag", lambda: None)
    monkeypatch.setattr(in_flight_socket, "Pulse", lambda _: SimpleNamespace(start=lambda: None))
    in_flight_socket.open_table_socket()
    await asyncio.gather(*in_flight_socket._opening)
    assert capsys.readouterr().err == "`gym ps` can't ask this process: no such place\n"


def test_a_socket_somebody_left_behind_is_replaced(tmp_path: Path) -> None:
    listen(tmp_path, "a.sock").close()
    with pytest.raises(NoAnswerError) as raised:
        ask(tmp_path, "a.sock", "double", number=1)
    assert not raised.value.is_listening
    with answering(tmp_path):
        assert ask(tmp_path, "a.sock", "double", number=1, seconds=20) == {"doubled": 2}


def test_silence_and_absence_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError) as raised:
        ask(tmp_path, "nobody.sock", "double")
    assert not raised.value.is_listening
    with listen(tmp_path, "a.sock"), pytest.raises(NoAnswerError) as raised:
        ask(tmp_path, "a.sock", "double", seconds=0.05)
    assert raised.value.is_listening


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"v": 1, "op": "pause"}\n', "unknown_operation"),
        (b'{"v": 2, "op": "double", "number": 1}\n', "version"),
        (b'{"v": 1}\n', "malformed"),
        (b"[1]\n", "malformed"),
        (b"nonsense\n", "malformed"),
        (b'{"v": 1, "op": "double"}\n', "malformed"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(line: bytes, code: str) -> None:
    said = json.loads(answer_line(line, answer))
    assert (said["ok"], said["error"]["code"]) == (False, code)


def test_a_refusal_is_raised_where_it_was_asked(tmp_path: Path) -> None:
    with answering(tmp_path), pytest.raises(RefusedError, match="no operation 'pause'; there are: double") as raised:
        ask(tmp_path, "a.sock", "pause", seconds=20)
    assert raised.value.code == "unknown_operation"


def test_a_request_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_REQUEST_SECONDS", 60.0)
    with answering(tmp_path), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(15)
        client.connect(str(tmp_path / "a.sock"))
        client.sendall(b"x" * (control_socket.LONGEST_REQUEST_BYTES + 1))
        assert client.recv(10) == b""
