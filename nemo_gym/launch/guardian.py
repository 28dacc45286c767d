"""The last one out: waits for the launcher's or the fork server's death and kills whatever they left behind.

It is forked by the fork server before anything is preloaded, so it is small and knows nothing that could fail.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nemo_gym.launch.linux import name_process, open_pidfd, process_start
from nemo_gym.launch.marker import sweep
from nemo_gym.launch.run_files import remove_run_files

ALL_DONE = "done"
CLEANING_SECONDS = 0.5
LAUNCHER_SECONDS = 1.0
"""How long a launcher whose fork server is gone may take to clean up after itself, before we do it."""
_BLIND_POLL_MS = 100


class Watched:
    """A process whose death can be waited for, with or without a pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = open_pidfd(pid)
        self._start = process_start(pid)

    def is_alive(self) -> bool:
        return self._start is not None and process_start(self.pid) == self._start

    def wait(self, seconds: float) -> None:
        """Return when it is dead or the time is up."""
        poller = select.poll()
        if self.pidfd is not None:
            poller.register(self.pidfd, select.POLLIN)
            poller.poll(seconds * 1000)
            return
        for _ in range(int(seconds * 1000 / _BLIND_POLL_MS)):
            if not self.is_alive():
                return
            poller.poll(_BLIND_POLL_MS)


@dataclass
class Guardian:
    """Watches both; `orders` is a pipe on which the fork server names the run's folder or says that all is done."""

    marker: str
    launcher: Watched
    zygote: Watched
    orders: int
    run_directory: str = ""

    def run(self) -> None:
        poller = select.poll()
        fds = [fd for fd in (self.launcher.pidfd, self.zygote.pidfd, self.orders) if fd is not None]
        for fd in fds:
            poller.register(fd, select.POLLIN)
        patience = None if len(fds) == 3 else _BLIND_POLL_MS
        while self.launcher.is_alive() and self.zygote.is_alive():
            ready = {fd for fd, _ in poller.poll(patience)}
            if self.orders in ready and not self._take_orders():
                return
        self._clean()

    def _take_orders(self) -> bool:
        """False when there is nothing left to guard."""
        text = os.read(self.orders, 1 << 16).decode()
        if not text:
            self.zygote.wait(CLEANING_SECONDS)
            self._clean()
            return False
        for line in text.splitlines():
            if line == ALL_DONE:
                return False
            self.run_directory = line
        return True

    def _clean(self) -> None:
        if not self.launcher.is_alive():
            self.zygote.wait(CLEANING_SECONDS)
        sweep(self.marker)
        if self.run_directory:
            self.launcher.wait(LAUNCHER_SECONDS)
            if not self.launcher.is_alive():
                remove_run_files(Path(self.run_directory))


def run_guardian(marker: str, launcher_pid: int, zygote_pid: int, orders: int) -> NoReturn:
    """Guard until there is nothing to guard, then end this process."""
    code = 1
    with contextlib.suppress(BaseException):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        name_process("gym-guardian")
        Guardian(marker, Watched(launcher_pid), Watched(zygote_pid), orders).run()
        code = 0
    os._exit(code)
