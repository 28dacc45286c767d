"""What a server prints goes to its log, and a log is no reason to fail: a full disk costs the lines, not the call."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from nemo_gym.config.handover import CONFIG_FILE_ENV

_STREAMS = ((1, "stdout"), (2, "stderr"))


class LogFile(io.FileIO):
    """Takes everything; what can't be written is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def print_to_log() -> None:
    """Have this process's standard streams, line by line, go to their descriptors and never fail."""
    for number, name in _STREAMS:
        lines = io.BufferedWriter(LogFile(number, "w", closefd=False))
        stream = io.TextIOWrapper(lines, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def print_to_log_if_launched() -> None:
    """The same in a process of a run that has its interpreter's own streams still, as those that weren't forked do."""
    has_own = all(getattr(sys, name) is getattr(sys, f"__{name}__") for _, name in _STREAMS)
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if os.environ.get(CONFIG_FILE_ENV) and has_own and not isinstance(raw, LogFile):
        print_to_log()
