"""Starting a run in the background: the command is run again, apart from this terminal, and waited for until ready."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from nemo_gym.config.handover import create_private_directory
from nemo_gym.launch.run_directory import running, runs_folder
from nemo_gym.launch.run_files import LAUNCHER_LOG_NAME, PRIVATE

READY_ENV = "NEMO_GYM_DETACHED_READY_FD"
LOG_ENV = "NEMO_GYM_DETACHED_LOG"
_POLL_SECONDS = 0.1
_MAIN = """import json, os, sys
sys.argv[:] = ["gym", *json.load(os.fdopen({fd}))]
from nemo_gym.cli.main import main
main()
"""
"""The arguments come through a pipe: a key among them must not stand in the list of processes for the whole run."""


def detach(argv: Sequence[str], *, write: Callable[[str], object] | None = None) -> int:
    """Run `gym <argv>` in the background; what it writes is shown until it is ready.

    Returns 0 once its servers are ready, else the exit code it ended with.
    """
    write = write or sys.stdout.write
    log = create_private_directory(runs_folder()) / f"detached-{os.getpid()}.log"
    ready, ready_end = os.pipe()
    arguments_end, arguments = os.pipe()
    with open(log, "wb", buffering=0, opener=partial(os.open, mode=PRIVATE)) as out:
        popen = subprocess.Popen(
            [sys.executable, "-c", _MAIN.format(fd=arguments_end)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, READY_ENV: str(ready_end), LOG_ENV: str(log)},
            pass_fds=[ready_end, arguments_end],
            start_new_session=True,
        )
    os.close(ready_end)
    os.close(arguments_end)
    with os.fdopen(arguments, "w") as file, contextlib.suppress(BrokenPipeError):
        json.dump(list(argv), file)
    try:
        with _open_text(log) as shown:
            became_ready = _relay_until_ready(ready, shown, write)
        if became_ready:
            write(_farewell(popen.pid))
            return 0
        return popen.wait()
    except KeyboardInterrupt:
        popen.terminate()
        popen.wait()
        raise
    finally:
        os.close(ready)
        log.unlink(missing_ok=True)


def _farewell(pid: int) -> str:
    port = next((info.head_port for info in running() if info.pid == pid), None)
    if port is None:
        return f"Done (pid {pid}).\n"  # a dry run, which stays nowhere
    return f"Running in the background at port {port} (pid {pid}). Stop it with `gym env stop --port {port}`.\n"


_waiting_commands: list[int] = []
"""The pipe to the command that detached this process, until it was told."""


def claim() -> None:
    """Take the pipe out of the environment: a server that held it open would keep the waiting command waiting."""
    number = os.environ.pop(READY_ENV, "")
    if number.isdigit():
        os.set_inheritable(int(number), False)
        _waiting_commands.append(int(number))


def announce_ready() -> None:
    """Tell whoever detached this process that its servers are ready; nothing when nobody did."""
    while _waiting_commands:
        fd = _waiting_commands.pop()
        with contextlib.suppress(OSError):
            os.write(fd, b"1")
        os.close(fd)


def adopt_log(directory: Path) -> None:
    """Move a detached launcher's own log into the run's folder, with which it will go."""
    log = os.environ.pop(LOG_ENV, None)
    if log is not None:
        with contextlib.suppress(OSError):
            Path(log).rename(directory / LAUNCHER_LOG_NAME)


@contextlib.contextmanager
def _open_text(path: Path) -> Iterator[Callable[[], str]]:
    """A function that returns what was added since it was last called."""
    with path.open(encoding="utf-8", errors="replace") as file:
        yield file.read


def _relay_until_ready(ready: int, read: Callable[[], str], write: Callable[[str], object]) -> bool:
    while True:
        readable, _, _ = select.select([ready], [], [], _POLL_SECONDS)
        told = os.read(ready, 1) if readable else None
        if text := read():
            write(text)
        if told is not None:
            return bool(told)
