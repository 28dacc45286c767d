"""Ports that jobs of this machine hold while they run, so that those which want the same one wait for each other."""

import fcntl
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from nemo_gym.config.handover import create_private_directory


class HeldPorts:
    """All of a job's ports or none, by locks of this user, which end with the process that holds them.

    What isn't a job can take a port all the same: the job's script asks before it starts its services.
    """

    def __init__(self, ports: Iterable[int], holder: str) -> None:
        self._ports = sorted(set(ports))
        self._holder = holder
        self._held = ExitStack()

    def take(self) -> str | None:
        """None once all are held; else why not, and none is."""
        folder = create_private_directory(Path(tempfile.gettempdir(), f"nemo-gym-{os.getuid()}-ports"))
        with ExitStack() as taken:
            for port in self._ports:
                file = taken.enter_context((folder / f"{port}.lock").open("a+", encoding="utf-8"))
                if not _locked(file):
                    return f"It waits for port {port}, which {_holder_of(file)} uses."
                file.truncate(0)
                file.write(self._holder)
                file.flush()
            self._held = taken.pop_all()
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.close()


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder_of(file: IO[str]) -> str:
    """The submission whose job has it: the folder above the job's."""
    file.seek(0, os.SEEK_SET)
    folder = file.read().strip()
    return Path(folder).parent.name if folder else "another job"
