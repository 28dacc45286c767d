"""How uv is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nemo_gym.launch import uv as uv_module
from nemo_gym.launch.errors import VenvError
from nemo_gym.launch.uv import Uv, UvResult, find_uv

SCRIPT = """#!/bin/sh
echo "$@" >> {log}
echo "cache=$UV_CACHE_DIR lock=$UV_LOCK_TIMEOUT downloads=$UV_PYTHON_DOWNLOADS venv=$VIRTUAL_ENV"
case "$*" in *--offline*) exit {offline} ;; esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a stand-in for uv, which fails offline, notes how it was called."""
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    return stand_in(tmp_path, monkeypatch, offline=1)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *, offline: int) -> Path:
    log, script = folder / "calls", folder / "uv"
    script.write_text(SCRIPT.format(log=log, offline=offline))
    script.chmod(0o755)
    monkeypatch.setattr(uv_module, "find_uv", lambda: str(script))
    return log


def test_the_cache_comes_before_the_network(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B28: the network is asked only for what the cache lacks."""
    assert Uv().run_offline_first(["pip"], directory=tmp_path).code == 0
    assert calls.read_text().splitlines() == [
        "pip --offline --color never --no-progress",
        "pip --color never --no-progress",
    ]
    calls.unlink()
    stand_in(tmp_path, monkeypatch, offline=0)
    Uv().run_offline_first(["pip"], directory=tmp_path)
    assert len(calls.read_text().splitlines()) == 1


def test_who_is_offline_stays_offline(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B28."""
    monkeypatch.setenv("UV_OFFLINE", "true")
    assert Uv().run_offline_first(["pip"], directory=tmp_path).code == 1
    assert len(calls.read_text().splitlines()) == 1


def test_the_runs_settings_reach_it(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    done = Uv(cache_dir=str(tmp_path / "c"), lock_timeout="7", verbose=True).run(["pip"], directory=tmp_path)
    assert done.output == f"cache={tmp_path / 'c'} lock=7 downloads=never venv=\n"
    assert calls.read_text().endswith(" -v\n")


def test_a_cache_that_another_user_made_is_left_to_them(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "/own")
    (tmp_path / "theirs").mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "theirs" and real(path, mode))
    done = Uv(cache_dir=str(tmp_path / "theirs/uv")).run(["pip"], directory=tmp_path)
    assert done.output.startswith("cache=/own ")


def test_a_reason_is_one_line() -> None:
    output = "Using Python 3\nerror: No solution found\n  cause: Because a\n         and b.\n\nhint: look\n"
    assert UvResult(1, output).reason == "No solution found Because a and b."
    assert UvResult(2, "").reason == "uv ended with code 2."
    assert UvResult(1, "error: dns failure").reason == "dns failure."


def test_the_binary_is_the_one_we_brought() -> None:
    find_uv.cache_clear()
    assert Path(find_uv()).name.startswith("uv")


def test_no_uv_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    find_uv.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "uv", None)
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        with pytest.raises(VenvError, match="pip install uv"):
            find_uv()
    finally:
        find_uv.cache_clear()
