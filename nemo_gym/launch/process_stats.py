"""What the system says of a process and those below it: CPU time, memory, and whether it is stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.launch.linux import IS_LINUX

RUNS, STOPPED, WAITS_FOR_DISK = "R", "T", "D"


@dataclass(frozen=True)
class ProcessStats:
    """`cpu_seconds` and `memory_bytes` (PSS where it can be read, else RSS) are of the whole tree below a process.

    `letter` is the process's own state as in `ps`: `T` is stopped, `D` waits for a disk or another device.
    """

    cpu_seconds: float
    memory_bytes: int
    letter: str


@dataclass(frozen=True)
class _Line:
    parent: int
    letter: str
    ticks: int
    pages: int


def process_stats(pids: list[int]) -> dict[int, ProcessStats]:
    """The figures of each living process; none where the system has no `/proc`."""
    if not IS_LINUX:
        return {}
    lines = {pid: line for folder in Path("/proc").iterdir() if (pid := _number(folder)) and (line := _line_of(folder))}
    children: dict[int, list[int]] = {}
    for pid, line in lines.items():
        children.setdefault(line.parent, []).append(pid)
    return {pid: _of_tree(pid, lines, children) for pid in pids if pid in lines}


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped a process, as by SIGSTOP; one under a debugger isn't meant."""
    return letter_of(pid) == STOPPED


def letter_of(pid: int) -> str:
    """The state of a process as in `ps`, nothing where there is none; without `/proc` all that exist run."""
    if not IS_LINUX:
        return RUNS if _exists(pid) else ""
    line = _line_of(Path(f"/proc/{pid}"))
    return "" if line is None else line.letter


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _of_tree(root: int, lines: Mapping[int, _Line], children: Mapping[int, list[int]]) -> ProcessStats:
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    seconds = sum(lines[pid].ticks for pid in tree) / os.sysconf("SC_CLK_TCK")
    return ProcessStats(round(seconds, 2), sum(_memory(pid, lines[pid]) for pid in tree), lines[root].letter)


def _memory(pid: int, line: _Line) -> int:
    try:
        for text in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if text.startswith("Pss:"):
                return int(text.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return line.pages * os.sysconf("SC_PAGE_SIZE")


def _line_of(folder: Path) -> _Line | None:
    try:
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in ("Z", "X"):
        return None
    return _Line(int(fields[1]), fields[0], int(fields[11]) + int(fields[12]), int(fields[21]))


def _number(folder: Path) -> int:
    return int(folder.name) if folder.name.isdigit() else 0
