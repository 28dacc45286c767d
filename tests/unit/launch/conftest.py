"""A private place for components, venvs and run folders, and nothing left behind."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nemo_gym.launch import fork_server
from nemo_gym.launch.fork_server import ForkServer
from nemo_gym.launch.marker import MARKER_PREFIX


@pytest.fixture(autouse=True)
def run_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees this user's real runs, nor what an outer run left in the environment."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    for name in ("NEMO_GYM_RUN_DIR", "NEMO_GYM_CONFIG_PATH", "NEMO_GYM_CONFIG_FILE", "NEMO_GYM_CONFIG_DICT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def nothing_to_preload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Toys need none of what real servers import, and each test's fork server would take most of a second over it."""
    monkeypatch.setattr(fork_server, "PRELOADING_ROOM", "nemo_gym.errors")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A search root for components."""
    folder = tmp_path / "root"
    folder.mkdir()
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(folder))
    return folder


@pytest.fixture
def server() -> Iterator[ForkServer]:
    """A fork server of its own."""
    made = ForkServer()
    yield made
    made.close(1.0)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Whatever a test started has ended with it."""
    before = _marked()
    yield
    fork_server.discard_prestarted()
    assert _marked() <= before


def _marked() -> set[int]:
    """Processes below this one that carry any run's marker."""
    needle = MARKER_PREFIX.encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if needle in environment and f"XDG_RUNTIME_DIR={os.environ.get('XDG_RUNTIME_DIR')}".encode() in environment:
                found.add(int(folder.name))
    return found


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait for something that has no event to wait on."""

    def wait(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < deadline, "it never came true"
            select.select([], [], [], 0.01)

    return wait
