"""What all tests start from."""

import os
import signal
from collections.abc import AsyncIterator

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
