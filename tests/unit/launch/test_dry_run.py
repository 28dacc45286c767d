"""Waiting for what only builds; whole dry runs are in test_launch.py."""

import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nemo_gym.launch.dry_run import wait_until_ended
from nemo_gym.launch.errors import ServerFailedError, ServersLateError
from nemo_gym.launch.process import ServerProcess


def process(code: int | None) -> ServerProcess:
    """One that ends with `code`, or never; it notes how long it was waited for."""
    made = SimpleNamespace(waited=[])

    def wait(seconds: float | None) -> int:
        made.waited.append(seconds)
        if code is None:
            raise subprocess.TimeoutExpired("server", seconds or 0.0)
        return code

    made.wait = wait
    return cast(ServerProcess, made)


def waited_for(made: ServerProcess) -> list[float | None]:
    return cast(Any, made).waited  # type: ignore[no-any-return]


def test_all_have_to_end_well() -> None:
    both = {"a": process(0), "b": process(0)}
    wait_until_ended(both, None, str)
    assert [waited_for(each) for each in both.values()] == [[None], [None]]


def test_one_that_fails_is_described() -> None:
    with pytest.raises(ServerFailedError, match="it is broken"):
        wait_until_ended({"a": process(0), "b": process(3)}, 60.0, lambda _: "it is broken")


def test_one_that_is_late_is_named_with_the_setting_to_raise() -> None:
    quick, late = process(0), process(None)
    with pytest.raises(ServersLateError, match=r"After 60 s, b is still.*server_spinup_timeout_seconds"):
        wait_until_ended({"a": quick, "b": late}, 60.0, str)
    assert [0 < (each or 0) <= 60 for each in waited_for(quick) + waited_for(late)] == [True, True]
