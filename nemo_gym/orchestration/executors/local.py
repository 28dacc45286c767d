"""Jobs of this machine: a supervisor, detached from who submits, runs them one after the other."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nemo_gym.orchestration.connection import Connection
from nemo_gym.orchestration.errors import SubmissionError
from nemo_gym.orchestration.executors.base import Executor, JobStatus
from nemo_gym.orchestration.jobs import BenchmarkRecord, SubmissionRecord
from nemo_gym.orchestration.local_jobs import (
    CANCELLED_FILE,
    PLAN_FILE,
    SUPERVISOR_LOG,
    LocalJob,
    State,
    end_groups,
    is_the_process,
    started_at,
)
from nemo_gym.orchestration.plan import RunPlan

_CANCEL_SECONDS = 120.0


class LocalExecutor(Executor):
    """Benchmarks share this machine's ports and memory, so they run one at a time."""

    name = "local"

    def submit(self, plan: RunPlan, connection: Connection) -> tuple[list[BenchmarkRecord], dict[str, Any]]:
        run_dir = Path(plan.run_dir)
        jobs = [LocalJob.of(job) for job in plan.jobs]
        (run_dir / PLAN_FILE).write_text(json.dumps([job.data() for job in jobs], indent=2) + "\n", encoding="utf-8")
        for job in jobs:
            State("PENDING").write(job.path)
        command = [sys.executable, "-P", "-m", "nemo_gym.orchestration.local_supervisor", plan.run_dir]
        try:
            with (run_dir / SUPERVISOR_LOG).open("ab") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            raise SubmissionError(f"{command[0]} can't be run: {error.strerror}.") from None
        job_id = f"local-{process.pid}"
        facts = {"supervisor": process.pid, "supervisor_started": started_at(process.pid)}
        return [BenchmarkRecord(benchmark=job.benchmark, job_dir=job.folder, job_id=job_id) for job in plan.jobs], facts

    def statuses(self, record: SubmissionRecord, connection: Connection) -> list[JobStatus]:
        lives = self._supervisor_lives(record)
        return [_status(one, lives) for one in record.benchmarks]

    def cancel(self, record: SubmissionRecord, benchmarks: Sequence[str], connection: Connection) -> list[str]:
        active = [
            one
            for one in record.benchmarks
            if one.benchmark in benchmarks and not State.read(Path(one.job_dir)).has_ended
        ]
        for one in active:
            (Path(one.job_dir) / CANCELLED_FILE).touch()
        deadline = time.monotonic() + _CANCEL_SECONDS
        while self._supervisor_lives(record) and any(not State.read(Path(one.job_dir)).has_ended for one in active):
            if time.monotonic() > deadline:
                raise SubmissionError(f"{record.gym_job_id} is still being ended; `gym jobs status` shows when it is.")
            time.sleep(0.1)
        for one in active:
            if not State.read(Path(one.job_dir)).has_ended:
                end_groups(Path(one.job_dir))
                State("CANCELLED", reason="Its supervisor had died.").write(Path(one.job_dir))
        return [one.benchmark for one in active]

    def _supervisor_lives(self, record: SubmissionRecord) -> bool:
        facts = record.executor_metadata
        return is_the_process(facts.get("supervisor"), facts.get("supervisor_started"))


def _status(one: BenchmarkRecord, supervisor_lives: bool) -> JobStatus:
    folder = Path(one.job_dir)
    state = State.read(folder)
    name, reason = state.name, state.reason
    if not state.has_ended and not supervisor_lives:
        name, reason = "FAILED", "Its supervisor died: what it left is ended by `gym jobs cancel`."
    try:
        measured = (folder / "artifacts" / "rollouts.jsonl").read_bytes().count(b"\n")
    except OSError:
        measured = 0
    job_id = one.job_id or f"local-{os.getpid()}"
    seconds = state.seconds_at(time.time()) if supervisor_lives else state.seconds
    return JobStatus(one.benchmark, name, job_id, state.attempt, seconds, measured, reason)
