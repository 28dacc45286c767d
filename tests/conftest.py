"""What all tests start from."""

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings

# Read when Ray is imported: under `uv run` it would pack the checkout and run actors in the copy.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"

# How long an example takes says more about the machine than about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Whoever started the tests may ignore these, as nohup and `&` in a script do, and every process they start would too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# How wide a table is must not depend on the terminal of whoever started the tests, nor on pytest-xdist, which sets it.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

_SIGNALS = [number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP)]
_OF_PYTEST = "PYTEST_CURRENT_TEST"
# What the program, and Ray, do to their own process on purpose, for what they start and import; tests begin without.
_UNDONE = (
    "the variable UV_",
    "the variable RAY_",
    "the variable PYTHONBREAKPOINT",
    "the level of the root logger",
    "sys.path",
)


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """A test that changes this process for those that come after it fails itself, and the change is undone."""
    before = _process()
    yield
    _compare(before)


@pytest.fixture(autouse=True, scope="module")
def process_as_before_the_module() -> Iterator[None]:
    """The same for what a module's own fixtures do."""
    before = _process()
    yield
    _compare(before)


def _process() -> dict[str, Any]:
    """What of this process any test could change and a later one would notice."""
    return {
        **{f"the handler of {number.name}": signal.getsignal(number) for number in _SIGNALS},
        **{f"the variable {name}": value for name, value in os.environ.items() if name != _OF_PYTEST},
        "the blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "the level of the root logger": logging.getLogger().level,
        "the working directory": os.getcwd(),  # noqa: PTH109
        "sys.argv": list(sys.argv),
        "sys.path": list(sys.path),
    }


def _compare(before: dict[str, Any]) -> None:
    after = _process()
    if after == before:
        return
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    _restore(before)
    if names := [name for name in names if not name.startswith(_UNDONE)]:
        pytest.fail(f"It leaves behind, changed: {', '.join(names)}.", pytrace=False)


def _restore(before: dict[str, Any]) -> None:
    for number in _SIGNALS:
        handler = before[f"the handler of {number.name}"]
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)
    kept = {name.removeprefix("the variable "): value for name, value in before.items() if name[:12] == "the variable"}
    for name in os.environ.keys() - kept.keys() - {_OF_PYTEST}:
        del os.environ[name]
    os.environ.update(kept)
    signal.pthread_sigmask(signal.SIG_SETMASK, before["the blocked signals"])
    logging.getLogger().setLevel(before["the level of the root logger"])
    os.chdir(before["the working directory"])
    sys.argv[:], sys.path[:] = before["sys.argv"], before["sys.path"]


@pytest.fixture
async def fresh_client() -> AsyncIterator[None]:
    """No HTTP client of another test in this process, and none left behind."""
    await _close_clients()
    yield
    await _close_clients()


async def _close_clients() -> None:
    from nemo_gym import server_utils

    for _, session in server_utils._client_sessions.take_all():
        await session.close()
    server_utils._GLOBAL_AIOHTTP_CLIENT = server_utils._GLOBAL_AIOHTTP_CLIENT_SETTINGS = None
    server_utils._GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY = None
