"""What the supervisor of local jobs and those who ask about them share: plans, states, processes."""

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.replacing import replacing
from nemo_gym.orchestration.plan import JobPlan
from nemo_gym.orchestration.values import duration_seconds

PLAN_FILE = "local-plan.json"
STATE_FILE = "state.json"
SUPERVISOR_LOG = "supervisor.log"
CANCELLED_FILE = ".gym_cancelled"
MARK = "GYM_JOB_DIR"
_ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"})


@dataclass(frozen=True)
class LocalJob:
    """One benchmark's job. `max_retries` is None where it is not gone on with; times are in seconds, 0 is no limit."""

    benchmark: str
    folder: str
    walltime: int = 0
    max_retries: int | None = None
    max_walltime: int = 0
    ports: tuple[int, ...] = ()

    @classmethod
    def of(cls, job: JobPlan) -> "LocalJob":
        walltime, resume = job.config.the_compute.walltime, job.resume
        longest = resume.max_walltime if resume else None
        return cls(
            job.benchmark,
            job.folder,
            duration_seconds(walltime) if walltime else 0,
            resume.max_retries if resume else None,
            duration_seconds(longest) if longest else 0,
            tuple(job.ports),
        )

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def data(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class State:
    """Where a job is, in its folder: `seconds` is the time its attempts took, but for the one that began at `since`."""

    name: str
    attempt: int = 1
    seconds: int = 0
    reason: str | None = None
    since: float | None = None
    """A time as of `time.time`; None where no attempt is under way."""

    def seconds_at(self, now: float) -> int:
        return self.seconds + (max(0, int(now - self.since)) if self.since is not None else 0)

    @property
    def has_ended(self) -> bool:
        return self.name in _ENDED

    def write(self, folder: Path) -> None:
        with replacing(folder / STATE_FILE, durable=False) as file:
            file.write(json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "State":
        try:
            return cls(**json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls("UNKNOWN")


def started_at(pid: int) -> float:
    """When a process began, to tell it from a later one with the same number; 0 where it has ended."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def is_the_process(pid: object, started: object) -> bool:
    """Whether a process still runs, and is the one that began then."""
    import psutil

    if not isinstance(pid, int) or not isinstance(started, int | float):
        return False
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < 1.0
    except psutil.Error:
        return False


def end_groups(folder: Path) -> None:
    """Kill what is left of a job's steps: the process groups it noted that carry its mark."""
    try:
        pids = [int(line) for line in (folder / ".gym_pids").read_text().split()]
    except (OSError, ValueError):
        return
    for pid in pids:
        if any(_carries_mark(member, folder) for member in _group(pid)):
            _kill_group(pid)


def _group(leader: int) -> list[int]:
    import psutil

    members = []
    for pid in psutil.pids():
        try:
            if os.getpgid(pid) == leader:
                members.append(pid)
        except OSError:
            continue
    return members


def _carries_mark(pid: int, folder: Path) -> bool:
    import psutil

    try:
        return psutil.Process(pid).environ().get(MARK) == str(folder)
    except psutil.Error:
        return False


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:
        return
