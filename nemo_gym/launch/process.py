"""A server process as its launcher sees it: looks like `subprocess.Popen`, though it is the fork server's child."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import ClassVar

_PIDFD_SIGNALS = hasattr(signal, "pidfd_send_signal")


class ServerProcess:
    """One process; `returncode` is None while it lives, and -n when signal n ended it."""

    is_remote: ClassVar[bool] = False
    """Whether it may be on another machine, where its pid means another process or none."""

    def __init__(self, name: str, args: list[str], pid: int, pidfd: int | None = None) -> None:
        self.name = name
        self.args = args
        self.pid = pid
        self.pidfd = pidfd
        self.returncode: int | None = None
        self._words = ""
        self._signalling = threading.Lock()
        self._ended = threading.Event()

    def __repr__(self) -> str:
        state = "running" if self.returncode is None else f"ended with {self.returncode}"
        return f"<ServerProcess {self.name} pid={self.pid} {state}>"

    def poll(self) -> int | None:
        """The return code, None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The return code, once there is one; raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if not self._ended.wait(timeout) or self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal the process, not its group; nothing happens when it has ended."""
        with self._signalling:
            if self.returncode is not None:
                return
            try:
                if self.pidfd is not None and _PIDFD_SIGNALS:
                    signal.pidfd_send_signal(self.pidfd, number)
                else:
                    os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    @property
    def was_lost(self) -> bool:
        """Whether it ended because whoever starts processes did."""
        return bool(self._words)

    def end_with(self, returncode: int, words: str = "") -> None:
        """Record how it ended, in `words` where the code alone would mislead; the first record stands."""
        with self._signalling:
            if self.returncode is not None:
                return
            self._words = words
            self.returncode = returncode
            if self.pidfd is not None:
                os.close(self.pidfd)
                self.pidfd = None
        self._ended.set()

    def describe_end(self) -> str:
        """In words: `exited with code 3`, `was killed by SIGKILL`."""
        if self.returncode is None:
            return "is running"
        if self._words:
            return self._words
        if self.returncode >= 0:
            return f"exited with code {self.returncode}"
        try:
            return f"was killed by {signal.Signals(-self.returncode).name}"
        except ValueError:
            return f"was killed by signal {-self.returncode}"
