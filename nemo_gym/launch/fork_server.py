"""The launcher's end of the fork server."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from nemo_gym.config.roots import PARENT_DIR
from nemo_gym.launch import messages
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.linux import IS_LINUX
from nemo_gym.launch.marker import marked_processes, new_marker
from nemo_gym.launch.messages import SpawnRequest
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.spawner import Spawner

PRELOADING_ROOM = "nemo_gym.serve"
"""Its `preload()` imports what every server needs."""
SPAWN_SECONDS = 60.0
FACTS_SECONDS = 120.0
_CLOSE_MARGIN_SECONDS = 5.0
_CODE_SECONDS = 0.5
_GUARDIAN_POLL_SECONDS = 0.005


def _nobody_cares(_: ServerProcess) -> None:
    return


class ForkServer:
    """Starts the fork server at once; everything it preloads is imported while the caller goes on."""

    def __init__(self) -> None:
        self.on_death: Callable[[ServerProcess], None] = _nobody_cares
        self.marker = new_marker()
        self._owner = os.getpid()
        self._environment = MappingProxyType({**os.environ, self.marker: "1"})
        self._changed = threading.Condition()
        self._facts: PreloadFacts | None = None
        self._spawned: list[tuple[int, int | None]] = []
        self._running: dict[int, ServerProcess] = {}
        self._codes: dict[int, int] = {}
        self._gone = False
        self._spawning = threading.Lock()
        self._control, far_end = messages.new_channel()
        self._wakeup, self._wakeup_end = os.pipe()
        with far_end:
            self._popen = self._start(far_end)
        self._thread = threading.Thread(target=self._watch, name="gym-fork-server", daemon=True)
        self._thread.start()
        self._at_exit = self._kill
        atexit.register(self._at_exit)

    @property
    def environment(self) -> Mapping[str, str]:
        return self._environment

    @property
    def pid(self) -> int:
        return self._popen.pid

    def facts(self) -> PreloadFacts:
        with self._changed:
            self._changed.wait_for(lambda: self._facts is not None or self._gone, FACTS_SECONDS)
            if self._facts is None:
                raise LaunchError(f"The process that starts servers {self._how_it_ended()} before it was ready.")
            return self._facts

    def spawn(self, request: SpawnRequest, fds: Sequence[int]) -> ServerProcess:
        with self._spawning:
            self._let_it_go_on()
            try:
                messages.send(self._control, "spawn", {"request": messages.request_body(request)}, fds)
            except OSError as error:
                raise LaunchError(f"The process that starts servers {self._how_it_ended()}.") from error
            return self._take_spawned(request)

    def own(self, directory: Path) -> None:
        with contextlib.suppress(OSError):
            messages.send(self._control, "directory", {"path": str(directory)})

    def close(self, grace: float) -> None:
        atexit.unregister(self._at_exit)
        if self._facts is None:
            self._popen.kill()  # still importing: it has no children yet, and wouldn't hear us
        self._let_it_go_on()
        with contextlib.suppress(OSError):
            messages.send(self._control, "end", {"grace": grace})
        try:
            self._popen.wait(grace + _CLOSE_MARGIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()  # its children die with it, and the guardian sweeps
            self._popen.wait()
        self._thread.join(_CLOSE_MARGIN_SECONDS)
        self._wait_for_guardian()
        self._release()

    def _let_it_go_on(self) -> None:
        """Whoever stopped it, by SIGSTOP, meant no harm to what it has to do now."""
        with contextlib.suppress(OSError):
            self._popen.send_signal(signal.SIGCONT)

    def _start(self, far_end: socket.socket) -> subprocess.Popen[bytes]:
        code = (
            f"import sys; sys.path.append({str(PARENT_DIR)!r}); from nemo_gym.launch.zygote import main; "
            f"main({far_end.fileno()}, {os.getpid()}, {self.marker!r}, {PRELOADING_ROOM!r})"
        )
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[far_end.fileno()],
            start_new_session=True,
        )

    def _take_spawned(self, request: SpawnRequest) -> ServerProcess:
        with self._changed:
            self._changed.wait_for(lambda: self._spawned or self._gone, SPAWN_SECONDS)
            if not self._spawned:
                raise LaunchError(f"{request.name} couldn't be started: the process that starts servers is gone.")
            pid, pidfd = self._spawned.pop(0)
            process = ServerProcess(request.name, [request.python, request.entrypoint], pid, pidfd)
            self._running[pid] = process
        self._wake()
        self._settle(pid)
        if self._gone:
            self._bury(process, -signal.SIGKILL)
        return process

    def _watch(self) -> None:
        """Listen to the fork server and to the pidfds; the one that speaks first is believed."""
        while not self._gone:
            poller = select.poll()
            by_fd = {p.pidfd: p for p in list(self._running.values()) if p.pidfd is not None}
            for fd in (self._control.fileno(), self._wakeup, *by_fd):
                poller.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poller.poll()}
            if self._wakeup in ready:
                os.read(self._wakeup, 4096)
            if self._control.fileno() in ready:
                self._take_message()
            for fd in ready & by_fd.keys():
                self._notice_death(by_fd[fd])
        self._lose_everything()

    def _take_message(self) -> None:
        try:
            message = messages.receive(self._control)
        except OSError:
            message = None
        with self._changed:
            if message is None:
                self._gone = True
            elif message.kind == "preloaded":
                self._facts = PreloadFacts.from_body(message.body)
            elif message.kind == "spawned":
                self._spawned.append((message.body["pid"], message.fds[0] if message.fds else None))
            elif message.kind == "exited":
                self._codes[message.body["pid"]] = message.body["code"]
            self._changed.notify_all()
        if message is not None and message.kind == "exited":
            self._settle(message.body["pid"])

    def _notice_death(self, process: ServerProcess) -> None:
        """The pidfd says dead; the code follows on the control socket, unless the fork server is stuck or gone."""
        poller = select.poll()
        poller.register(self._control.fileno(), select.POLLIN)
        while process.returncode is None and not self._gone and poller.poll(_CODE_SECONDS * 1000):
            self._take_message()
        self._bury(process, -signal.SIGKILL)

    def _settle(self, pid: int) -> None:
        """Match a process with its code, whichever of the two came first."""
        with self._changed:
            process = self._running.get(pid)
            code = self._codes.get(pid)
        if process is not None and code is not None:
            self._bury(process, code)

    def _bury(self, process: ServerProcess, code: int) -> None:
        with self._changed:
            if self._running.pop(process.pid, None) is None:
                return
            self._codes.pop(process.pid, None)
            lost = f"went down with the process that starts servers (pid {self.pid})," if self._gone else ""
            process.end_with(code, lost if code == -signal.SIGKILL else "")
            self._changed.notify_all()
        self.on_death(process)

    def _lose_everything(self) -> None:
        """The fork server is gone, and by the kernel's hand all its children with it."""
        for process in list(self._running.values()):
            self._bury(process, -signal.SIGKILL)

    def _wait_for_guardian(self) -> None:
        """After a fork server that couldn't dismiss it; it ends by itself once nothing is left to kill."""
        deadline = time.monotonic() + _CLOSE_MARGIN_SECONDS
        while self._popen.returncode != 0 and marked_processes(self.marker) and time.monotonic() < deadline:
            time.sleep(_GUARDIAN_POLL_SECONDS)

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(1.0)
        code = self._popen.returncode
        return f"(pid {self._popen.pid}) " + ("doesn't answer" if code is None else f"ended with code {code}")

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wakeup_end, b"1")

    def _kill(self) -> None:
        """At exit without `close`: nobody wants the servers, and nobody waits for them."""
        if os.getpid() != self._owner:
            return  # in a fork of the launcher, whose run it isn't
        if not self._running:
            self._popen.kill()
        with contextlib.suppress(OSError):
            self._control.close()

    def _release(self) -> None:
        for fd in (self._wakeup, self._wakeup_end):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._control.close()


_prestarted: list[Spawner] = []


def prestart() -> None:
    """Begin to start the fork server now, so that its imports overlap what comes before the first server."""
    if not _prestarted:
        _prestarted.append(new_spawner())


def take_spawner() -> Spawner:
    """The prestarted one when there is one, else a new one; it is the caller's to close."""
    return _prestarted.pop() if _prestarted else new_spawner()


def discard_prestarted() -> None:
    """Close a prestarted fork server that turned out not to be needed."""
    while _prestarted:
        _prestarted.pop().close(0.0)


def new_spawner() -> Spawner:
    if IS_LINUX:
        return ForkServer()
    from nemo_gym.launch.direct import DirectSpawner

    return DirectSpawner()
