"""Several processes that serve one socket: forks of one parent, which ends with the first of them and they with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass

from nemo_gym.serve.errors import WorkerError
from nemo_gym.serve.sockets import report_ready

STOP_GRACE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Worker:
    """This process is one of several; it reports to its parent through `ready_descriptor`."""

    index: int
    ready_descriptor: int


def fork_workers(count: int, listener: socket.socket, ready_descriptor: int | None) -> Worker:
    """Fork `count` workers; returns in each of them, and never in the parent, which stands by until they end.

    Call it before threads or loops exist. The parent closes its copy of the socket, reports readiness when all workers
    have, passes INT and TERM on, and raises WorkerError when a worker ends unasked.
    """
    children: dict[int, int] = {}
    for index in range(count):
        parent_end, child_end = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for descriptor in (parent_end, *children.values(), *filter(None, [ready_descriptor])):
                os.close(descriptor)
            _die_with(parent)
            return Worker(index, child_end)
        os.close(child_end)
        children[pid] = parent_end
    listener.close()
    raise SystemExit(_stand_by(children, ready_descriptor))


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _stand_by(children: dict[int, int], ready_descriptor: int | None) -> int:
    pids = set(children)
    stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        _signal_all(pids, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if _all_ready(list(children.values())):
        report_ready(ready_descriptor)
    pid, status = os.wait()
    pids.discard(pid)
    _end(pids)
    code = os.waitstatus_to_exitcode(status)
    if not stopping:
        raise WorkerError(f"A worker (process {pid}) ended with code {code}, so the others were stopped.")
    return 0 if code in (0, -signal.SIGINT, -signal.SIGTERM) else code


def _all_ready(pipes: list[int]) -> bool:
    """Wait for a byte from every worker; False as soon as one has closed its pipe without it."""
    waiting = set(pipes)
    while waiting:
        readable, _, _ = select.select(list(waiting), [], [])
        for descriptor in readable:
            if not os.read(descriptor, 1):
                return False
            waiting.discard(descriptor)
    return True


def _end(pids: set[int]) -> None:
    _signal_all(pids, signal.SIGTERM)
    deadline = time.monotonic() + STOP_GRACE_SECONDS
    while pids:
        _reap(pids)
        if pids and time.monotonic() > deadline:
            _signal_all(pids, signal.SIGKILL)
        if pids:
            time.sleep(0.01)


def _reap(pids: set[int]) -> None:
    for pid in list(pids):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        pids.discard(pid)


def _signal_all(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
