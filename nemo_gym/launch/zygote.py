"""The fork server: one process without threads that makes every server process of a run and buries it.

Its children die with it, it adopts their orphans, and when the launcher goes it ends them all.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.launch import messages
from nemo_gym.launch.child import become, start_own_life
from nemo_gym.launch.guardian import ALL_DONE, Watched, run_guardian
from nemo_gym.launch.linux import adopt_orphans, name_process, open_pidfd
from nemo_gym.launch.marker import sweep
from nemo_gym.launch.messages import SpawnRequest
from nemo_gym.launch.preload import preload

ABANDONED_GRACE_SECONDS = 0.3
_BLIND_POLL_MS = 200


@dataclass
class Child:
    """What a fresh fork has to become, and with what."""

    request: SpawnRequest
    fds: list[int]


@dataclass
class Zygote:
    """`serve` returns None when there is nothing left to do, and a `Child` in a child."""

    control: socket.socket
    launcher: Watched
    marker: str
    orders: int
    guardian_pid: int
    wakeup: int
    wakeup_end: int
    servers: dict[int, str] = field(default_factory=dict)
    asked_to_end: bool = False

    def serve(self) -> Child | None:
        poller = select.poll()
        for fd in (self.control.fileno(), self.wakeup, self.launcher.pidfd):
            if fd is not None:
                poller.register(fd, select.POLLIN)
        patience = None if self.launcher.pidfd is not None else _BLIND_POLL_MS
        while not self.asked_to_end:
            ready = {fd for fd, _ in poller.poll(patience)}
            if self.wakeup in ready:
                os.read(self.wakeup, 4096)
            self._reap()
            if self.control.fileno() in ready:
                child = self._answer()
                if child is not None:
                    return child
            elif not self.launcher.is_alive():
                self._end(ABANDONED_GRACE_SECONDS)
        return None

    def _answer(self) -> Child | None:
        message = messages.receive(self.control)
        if message is None:
            self._end(ABANDONED_GRACE_SECONDS)
        elif message.kind == "spawn":
            return self._spawn(SpawnRequest(**message.body["request"]), message.fds)
        elif message.kind == "directory":
            os.write(self.orders, f"{message.body['path']}\n".encode())
        elif message.kind == "end":
            self._end(float(message.body["grace"]))
        return None

    def _spawn(self, request: SpawnRequest, fds: list[int]) -> Child | None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            return self._become_child(parent, request, fds)
        _set_group(pid)
        self.servers[pid] = request.name
        pidfd = open_pidfd(pid)
        self._tell("spawned", {"pid": pid}, [] if pidfd is None else [pidfd])
        for fd in (*fds, *([] if pidfd is None else [pidfd])):
            os.close(fd)
        return None

    def _become_child(self, parent: int, request: SpawnRequest, fds: list[int]) -> Child:
        self.control.close()
        for fd in (self.wakeup, self.wakeup_end, self.orders, self.launcher.pidfd):
            if fd is not None:
                os.close(fd)
        start_own_life(parent)
        return Child(request, fds)

    def _reap(self) -> None:
        """Bury the dead. A dead server's group is killed while its zombie still holds the group's number."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            pid = dead.si_pid
            name = self.servers.pop(pid, None)
            if name is not None:
                _kill_group(pid)
            _, status = os.waitpid(pid, 0)
            if name is not None:
                self._tell("exited", {"pid": pid, "code": os.waitstatus_to_exitcode(status)})

    def _end(self, grace: float) -> None:
        """End every server: TERM, a shared grace, then KILL for what is left of the run."""
        self.asked_to_end = True
        for pid in self.servers:
            _signal(pid, signal.SIGTERM)
            _signal(pid, signal.SIGCONT)  # a stopped process hears nothing else
        deadline = time.monotonic() + grace
        while self.servers and (left := deadline - time.monotonic()) > 0:
            self._wait_for_a_death(left)
        for pid in self.servers:
            _kill_group(pid)
        sweep(self.marker, {self.guardian_pid})
        while self.servers:
            self._wait_for_a_death(1.0)
        self._reap()
        self._dismiss_guardian()

    def _wait_for_a_death(self, seconds: float) -> None:
        ready, _, _ = select.select([self.wakeup], [], [], seconds)
        if ready:
            os.read(self.wakeup, 4096)
        self._reap()

    def _dismiss_guardian(self) -> None:
        if not self.launcher.is_alive():
            return  # it has the run's folder to remove, and goes when we do
        with suppress(BrokenPipeError):  # it may have been killed
            os.write(self.orders, f"{ALL_DONE}\n".encode())
        try:
            os.waitpid(self.guardian_pid, 0)
        except ChildProcessError:
            return

    def _tell(self, kind: str, body: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            messages.send(self.control, kind, body, fds or ())
        except OSError:
            return  # the launcher is gone; the next poll notices


def _set_group(pid: int) -> None:
    try:
        os.setpgid(pid, pid)
    except OSError:
        return  # the child did it first, and has already become another program


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        return


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def _ignore(*_: object) -> None:
    return


def main(control_fd: int, launcher_pid: int, marker: str, room: str) -> None:
    """Guard, preload, serve; what a child becomes is run after everything of ours has left the stack."""
    if os.getppid() != launcher_pid:
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    name_process("gym-zygote")
    guardian_pid, orders = _fork_guardian(control_fd, launcher_pid, marker)
    wakeup, wakeup_end = os.pipe()
    os.set_blocking(wakeup_end, False)
    signal.signal(signal.SIGCHLD, _ignore)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    sys.dont_write_bytecode = False
    facts = preload(room)
    control = socket.socket(fileno=control_fd)
    zygote = Zygote(control, Watched(launcher_pid), marker, orders, guardian_pid, wakeup, wakeup_end)
    zygote._tell("preloaded", facts.as_body())
    child = zygote.serve()
    if child is not None:
        del zygote, control, facts
        become(child.request, child.fds)


def _fork_guardian(control_fd: int, launcher_pid: int, marker: str) -> tuple[int, int]:
    """The guardian's pid and the pipe that gives it orders; the guardian keeps nothing else open."""
    orders_end, orders = os.pipe()
    zygote_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(control_fd)
        os.close(orders)
        run_guardian(marker, launcher_pid, zygote_pid, orders_end)
    os.close(orders_end)
    return pid, orders
