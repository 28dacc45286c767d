"""A run that only builds: every server is constructed in a process of its own, which then ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping

from nemo_gym.launch.errors import ServerFailedError, ServersLateError
from nemo_gym.launch.process import ServerProcess


def wait_until_ended(
    processes: Mapping[str, ServerProcess], seconds: float | None, describe: Callable[[ServerProcess], str]
) -> None:
    """Return when all have ended well. Raises ServerFailedError, with what `describe` says, or ServersLateError."""
    deadline = None if seconds is None else time.monotonic() + seconds
    for name, process in processes.items():
        try:
            code = process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ServersLateError(
                f"After {seconds:g} s, {name} is still being constructed: allow more time with "
                f"+server_spinup_timeout_seconds=<seconds>."
            ) from None
        if code != 0:
            raise ServerFailedError(describe(process))
