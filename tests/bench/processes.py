"""CPU seconds and memory of a process and of everything it started."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.machine import quiet_environment

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """CPU seconds (user + system) of one finished command and its wall seconds."""

    cpu: float
    wall: float
    exit_code: int


def run(argv: list[str], *, cwd: Path) -> Usage:
    """Run a command to its end; children it waited for are counted."""
    started = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=cwd, env=quiet_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Usage(usage.ru_utime + usage.ru_stime, time.perf_counter() - started, process.returncode)


def cpu_seconds(pid: int) -> float:
    """User + system seconds of a live process and of the children it has reaped; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / _TICK


def family(pid: int) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return []


def pss_megabytes(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


@contextlib.contextmanager
def background(argv: list[str], *, cwd: Path, ready: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until the block ends; entered once `ready` stands in its output."""
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, cwd=cwd, env=quiet_environment(), stdout=sink, stderr=subprocess.STDOUT)
    try:
        wait_for_line(process, log, ready)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_for_line(process: subprocess.Popen[bytes], log: Path, text: str, *, limit: float = 180) -> float:
    """Seconds until `text` appears in the log; an error that shows the log when the process ends first."""
    started = time.perf_counter()
    while time.perf_counter() - started < limit:
        if text.encode() in log.read_bytes():
            return time.perf_counter() - started
        if process.poll() is not None:
            break
        time.sleep(0.005)
    raise RuntimeError(f"`{text}` never appeared:\n{log.read_text(errors='replace')[-4000:]}")
