"""Servers hear signals that whoever starts them doesn't: Ray blocks INT in everything it runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_gym.launch.direct import DirectSpawner
from nemo_gym.launch.fork_server import ForkServer
from nemo_gym.launch.logs import open_log
from nemo_gym.launch.messages import SpawnRequest

PROGRAM = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"


@pytest.fixture
def blocked() -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.parametrize(
    ("spawner_class", "mode"), [(ForkServer, "fork"), (ForkServer, "exec"), (DirectSpawner, "exec")]
)
def test_a_server_begins_with_an_empty_mask(blocked: None, tmp_path: Path, spawner_class: type, mode: str) -> None:
    (tmp_path / "toy.py").write_text(PROGRAM)
    spawner = spawner_class()
    log = open_log(tmp_path / "log")
    request = SpawnRequest(
        name="toy",
        mode=mode,  # type: ignore[arg-type]
        python=sys.executable,
        prefix=sys.prefix,
        site_packages=str(tmp_path),
        entrypoint=str(tmp_path / "toy.py"),
        directory=str(tmp_path),
        environment={},
        unset=[],
        roles=["log"],
    )
    try:
        assert spawner.spawn(request, [log]).wait(30) == 0
    finally:
        os.close(log)
        spawner.close(1.0)
    assert (tmp_path / "log").read_text() == "[]\n"
