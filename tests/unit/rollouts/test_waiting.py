"""Waiting for servers that somebody else starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollouts.errors import ServersUnavailableError
from nemo_gym.rollouts.waiting import Clock, spinup_seconds, wait_for_head, wait_for_servers
from nemo_gym.serve.errors import UnreachableHeadError
from tests.unit.rollouts.fakes import served


@dataclass
class Time:
    """A clock that only sleeping moves."""

    seconds: float = 0.0
    said: list[str] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.seconds, sleep=self.sleep, say=self.said.append)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(autouse=True)
def run_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NEMO_GYM_RUN_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def unreachable() -> Any:
    raise UnreachableHeadError("No head server answers at http://127.0.0.1:11000: start one.")


def test_a_head_that_nobody_starts_is_given_up_soon_in_three_lines_at_most(time: Time) -> None:
    with pytest.raises(ServersUnavailableError, match="No head server answers") as raised:
        wait_for_head(unreachable, 11000, clock=time.clock)
    assert 1 <= time.seconds <= 5
    assert len(str(raised.value).splitlines()) + len(time.said) <= 3


def test_a_head_whose_run_is_starting_is_waited_for(
    time: Time, run_directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(run_directories))

    def connect() -> str:
        return "client" if time.seconds >= 35 else unreachable()

    assert wait_for_head(connect, 11000, clock=time.clock) == "client"
    assert len(time.said) == 3
    with pytest.raises(ServersUnavailableError):
        wait_for_head(unreachable, 11000, seconds=60, clock=time.clock)
    assert 95 <= time.seconds < 97


def test_servers_are_waited_for_with_a_line_every_ten_seconds_that_names_them(time: Time) -> None:
    asked: list[str] = []

    def status(name: str) -> str:
        asked.append(name)
        return "success" if name == "a" or time.seconds >= 25 else "timeout"

    wait_for_servers(["a", "b", "c"], status, clock=time.clock)
    assert time.said == ["Waiting for b, c (10 s of at most 600).", "Waiting for b, c (20 s of at most 600)."]
    assert asked.count("a") == 1, "who answered once isn't asked again"


def test_servers_that_never_answer_are_named(time: Time) -> None:
    with pytest.raises(ServersUnavailableError, match="b did not answer within 30 s: see `gym env status`"):
        wait_for_servers(
            ["a", "b"], lambda name: "success" if name == "a" else "connection_error", seconds=30, clock=time.clock
        )
    assert time.seconds == 30


def test_no_limit_waits_on(time: Time) -> None:
    wait_for_servers(["a"], lambda name: "success" if time.seconds > 700 else "timeout", seconds=0, clock=time.clock)
    assert time.seconds > 700


def test_the_limit_is_the_configs_own() -> None:
    assert spinup_seconds(served()) == 600
    assert spinup_seconds(served(server_spinup_timeout_seconds=5)) == 5
