"""Runs one command and ends it with everything it started; a script of the standard library alone, for Linux.

It is copied into sandboxes and run there: `process_supervisor.py --timeout S --receipt FILE [--stop-file FILE] -- CMD`.
The receipt says how it went; the exit code is 0 only when nothing was left running and nothing went wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

DEFAULT_CLEANUP_TIMEOUT = 10.0

_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02
_SPARE_SECONDS = 30.0


def exec_timeout(*, timeout: float, cleanup_timeout: float = DEFAULT_CLEANUP_TIMEOUT) -> float:
    """How long running this script may take, in seconds: more than it needs, so that it ends by itself."""
    return timeout + 3 * cleanup_timeout + _SPARE_SECONDS


class Supervisor:
    """Owns the command's whole tree: orphans of it become children of this process."""

    def __init__(self, command: list[str], timeout: float, cleanup_timeout: float, stop_file: str | None) -> None:
        self.command = command
        self.timeout = timeout
        self.cleanup_timeout = cleanup_timeout
        self.stop_file = stop_file
        self.is_stopped = False
        self.process: subprocess.Popen[bytes] | None = None
        self.status: int | None = None

    def run(self) -> dict[str, Any]:
        """Run the command, end what is left of it, and return the receipt."""
        receipt: dict[str, Any] = {"cleanup_confirmed": False, "return_code": None, "error": None, "timed_out": False}
        try:
            _become_subreaper()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, self._stop)
            # Kept, since it would wait for the command itself when it is collected.
            self.process = subprocess.Popen(self.command, start_new_session=True)
            receipt["timed_out"] = not self._ended_in_time()
        except OSError as error:
            receipt["error"] = str(error)
        receipt["cleanup_confirmed"] = self._clean_up()
        receipt["return_code"] = self.status
        if not receipt["cleanup_confirmed"] and receipt["error"] is None:
            receipt["error"] = f"processes were left running: {sorted(descendants())}"
        return receipt

    def _stop(self, number: int, frame: object) -> None:
        self.is_stopped = True

    def _ended_in_time(self) -> bool:
        """Whether the command ended by itself or was asked to stop before its time was over."""
        deadline = time.monotonic() + self.timeout
        while self.status is None:
            self._reap()
            if self.status is not None or self._is_asked_to_stop():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _is_asked_to_stop(self) -> bool:
        return self.is_stopped or (self.stop_file is not None and os.path.exists(self.stop_file))  # noqa: PTH110

    def _clean_up(self) -> bool:
        return any(self._ended_by(number) for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL))

    def _ended_by(self, number: signal.Signals) -> bool:
        deadline = time.monotonic() + self.cleanup_timeout
        signalled: set[int] = set()
        while True:
            self._reap()
            left = descendants()
            if not left:
                return True
            for pid in left - signalled if number is signal.SIGTERM else left:
                _send(pid, number)
            signalled |= left
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.process is not None and pid == self.process.pid:
                self.status = os.waitstatus_to_exitcode(status)


def descendants() -> set[int]:
    """Pids of all live processes below this one; the dead ones that nobody has waited for don't count."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            state, parent = _state_and_parent(name)
            if state not in ("", "Z", "X"):
                parents[int(name)] = parent
    return {pid for pid in parents if _is_below(pid, os.getpid(), parents)}


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _state_and_parent(pid: str) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return state, int(parent)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def _become_subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "can't become the reaper of orphans")


def _write(path: str, receipt: dict[str, Any]) -> None:
    """Whole or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w") as file:  # noqa: PTH123
        json.dump(receipt, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)  # noqa: PTH105


def main(argv: list[str]) -> int:
    """Run as a script. Exit code 0: nothing is left and nothing went wrong."""
    parser = argparse.ArgumentParser(description="Run a command and end everything it started.")
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--cleanup-timeout", type=float, default=DEFAULT_CLEANUP_TIMEOUT)
    parser.add_argument("--receipt", required=True)
    parser.add_argument("--stop-file")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command given: put it after --")
    receipt = Supervisor(command, options.timeout, options.cleanup_timeout, options.stop_file).run()
    _write(options.receipt, receipt)
    return 0 if receipt["cleanup_confirmed"] and receipt["error"] is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
