import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Ended

ROOT = Path(__file__).resolve().parents[3]
FAKE_SLURM = Path(__file__).with_name("fake_slurm.py")
SLURM_PROGRAMS = ("sbatch", "srun", "scontrol", "sacct", "squeue", "scancel")
SLEEP = 'case "$1" in 0.2|1|2) set -- 0.05 ;; esac; exec /bin/sleep "$@"'
"""Looks again sooner than a script wants to."""
GYM = f'exec "{sys.executable}" -c "from nemo_gym.cli.main import main; main()" "$@"'
SECONDS = 180.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL")


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@dataclass
class Site:
    """A machine to submit on: programs of its own first on the path, and a home without anybody's settings."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def environment(self) -> dict[str, str]:
        dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "NEMO_GYM_RUN_DIR", "NEMO_GYM_EXTRA_ROOTS")
        kept = {name: value for name, value in os.environ.items() if name not in dropped and "SLURM" not in name}
        return {
            **kept,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "FAKE_SLURM": str(self.folder / "slurm"),
            "GYM_SACCT_PAUSE_SECONDS": "0.05",
            "GYM_COLLECTOR_GRACE_SECONDS": "0",
            "GYM_FREE_PORT_SECONDS": "1",
        }

    def program(self, name: str, text: str) -> None:
        program(self.bin, name, text)

    def gym(self, *argv: str, **environment: str) -> Ended:
        done = subprocess.run(
            [str(self.bin / "gym"), *argv],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def submit(self, path: Path, *more: str, **environment: str) -> dict[str, Any]:
        """The record of a submission that went well."""
        ended = self.gym("eval", "submit", "--config", str(path), "--json", *more, **environment)
        assert ended.code == 0, ended.err
        record: dict[str, Any] = json.loads(ended.out)
        return record

    def status(self, *more: str) -> list[dict[str, Any]]:
        ended = self.gym("jobs", "status", "--json", *more)
        assert ended.code == 0, ended.err
        found: list[dict[str, Any]] = json.loads(ended.out)["benchmarks"]
        return found

    def job_state(self, job: str) -> str:
        path = self.folder / "slurm" / job / "state"
        return path.read_text() if path.exists() else ""

    def end(self, job: str, state: str) -> None:
        """End a job of the fake cluster in this state."""
        (self.folder / "slurm" / job / "request").write_text(state)

    def srun_calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "slurm" / "srun.jsonl").read_text().splitlines()]


def wait_until(happened: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Wait for something that sends no event, such as a file another process writes."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A machine with `gym` and without Slurm. What it still runs at the end is ended."""
    place = Site(tmp_path)
    for name in ("bin", "slurm", "run", "cache"):
        (tmp_path / name).mkdir()
    place.program("gym", GYM)
    place.program("sleep", SLEEP)
    yield place
    _end_all(tmp_path)


@pytest.fixture
def cluster(site: Site) -> Site:
    """The same with the programs of Slurm."""
    for name in SLURM_PROGRAMS:
        site.program(name, f'exec "{sys.executable}" -S -E "{FAKE_SLURM}" {name} "$@"')
    return site


def _end_all(folder: Path) -> None:
    """Kill what carries the folder in its environment: every process that a test started in it."""
    mark = f"FAKE_SLURM={folder}/slurm".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
