"""Servers made with plain `exec`, for systems where a fork of a loaded process isn't safe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nemo_gym.config.handover import LISTEN_FD_ENV, READY_FD_ENV
from nemo_gym.launch.messages import SpawnRequest
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.process import ServerProcess

_FD_VARIABLES = {"listen": LISTEN_FD_ENV, "ready": READY_FD_ENV}
_LIFELINE = Path(__file__).with_name("lifeline.py")


def _nobody_cares(_: ServerProcess) -> None:
    return


class DirectSpawner:
    """Each child watches the read end of a pipe that only this process holds open: it ends when we do."""

    def __init__(self) -> None:
        self.on_death: Callable[[ServerProcess], None] = _nobody_cares
        self._environment = dict(os.environ)
        self._processes: list[ServerProcess] = []
        self._lifeline, self._lifeline_end = os.pipe()

    @property
    def environment(self) -> Mapping[str, str]:
        return self._environment

    def facts(self) -> PreloadFacts:
        return PreloadFacts(frozenset(), frozenset(), "servers are not forked on this system")

    def spawn(self, request: SpawnRequest, fds: Sequence[int]) -> ServerProcess:
        passed = dict(zip(request.roles, fds, strict=True))
        log = passed.pop("log")
        environment = {k: v for k, v in self._environment.items() if k not in request.unset}
        environment |= request.environment | {_FD_VARIABLES[role]: str(fd) for role, fd in passed.items()}
        command = [request.python, str(_LIFELINE), str(self._lifeline), request.entrypoint]
        popen = subprocess.Popen(
            command,
            cwd=request.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[self._lifeline, *passed.values()],
            start_new_session=True,
        )
        process = ServerProcess(request.name, command, popen.pid)
        self._processes.append(process)
        threading.Thread(target=self._wait_for, args=(popen, process), name=f"gym-{request.name}", daemon=True).start()
        return process

    def own(self, directory: Path) -> None:
        return

    def close(self, grace: float) -> None:
        for process in self._processes:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a stopped process hears nothing else
        deadline = time.monotonic() + grace
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            _kill_group(process.pid)
        for process in self._processes:
            process.wait()
        for fd in (self._lifeline, self._lifeline_end):
            os.close(fd)

    def _wait_for(self, popen: subprocess.Popen[bytes], process: ServerProcess) -> None:
        process.end_with(popen.wait())
        self.on_death(process)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
