"""`python -m nemo_gym.orchestration.local_supervisor RUN_DIR`: runs the jobs of a run here, one after the other."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from nemo_gym.orchestration.local_jobs import CANCELLED_FILE, PLAN_FILE, LocalJob, State, end_groups
from nemo_gym.orchestration.local_ports import HeldPorts
from nemo_gym.orchestration.script.resuming import RESUMABLE_EXIT

_GRACE_SECONDS = 90.0
_LOOK_SECONDS = 0.2


class Supervisor:
    """Jobs in order. A job ends with its script, its walltime or its cancellation; TERM cancels all."""

    def __init__(self, jobs: list[LocalJob]) -> None:
        self.jobs = jobs
        self.is_stopping = False

    def stop(self, *_: object) -> None:
        self.is_stopping = True

    def run(self) -> None:
        for job in self.jobs:
            with HeldPorts(job.ports, job.folder) as ports:
                if self._gets(ports, job):
                    self._run_job(job)
                else:
                    State("CANCELLED", attempt=0).write(job.path)

    def _gets(self, ports: HeldPorts, job: LocalJob) -> bool:
        """Wait until no other job here has the ports of this one; False where it is cancelled before."""
        said = None
        while not self._is_cancelled(job):
            reason = ports.take()
            if reason is None:
                return True
            if reason != said:
                State("PENDING", reason=reason).write(job.path)
                said = reason
            time.sleep(_LOOK_SECONDS)
        return False

    def _is_cancelled(self, job: LocalJob) -> bool:
        return self.is_stopping or (job.path / CANCELLED_FILE).exists()

    def _run_job(self, job: LocalJob) -> None:
        """Attempts until one is final: as a cluster's jobs go on after each other."""
        spent, retries, attempt, before = 0.0, 0, 0, None
        while True:
            attempt += 1
            State("RUNNING", attempt, int(spent), before, time.time()).write(job.path)
            began = time.monotonic()
            name, code = self._attempt(job, attempt)
            spent += time.monotonic() - began
            goes_on = job.max_retries is not None and name in ("FAILED", "TIMEOUT")
            if goes_on and name == "FAILED" and code != RESUMABLE_EXIT:
                retries += 1
                goes_on = retries <= (job.max_retries or 0)
            if goes_on and job.max_walltime and spent >= job.max_walltime:
                goes_on = False
            reason = _reason(job, name)
            if not goes_on:
                State(name, attempt, int(spent), reason).write(job.path)
                return
            before = f"Attempt {attempt}: {reason}" if reason else None

    def _attempt(self, job: LocalJob, number: int) -> tuple[str, int]:
        environment = {**os.environ, "GYM_LOCAL_RUN": str(number)}
        with (job.path / "logs" / f"job-{number}.log").open("ab") as log:
            process = _started(job, environment, log)
            name = self._watch(process, job)
        end_groups(job.path)
        return name or ("COMPLETED" if process.returncode == 0 else "FAILED"), process.returncode

    def _watch(self, process: "subprocess.Popen[bytes]", job: LocalJob) -> str | None:
        """Wait for the script; the state it was ended for, None where it ended by itself."""
        deadline = time.monotonic() + job.walltime if job.walltime else None
        while True:
            try:
                process.wait(_LOOK_SECONDS)
                return None
            except subprocess.TimeoutExpired:
                pass
            if self._is_cancelled(job):
                _end(process)
                return "CANCELLED"
            if deadline is not None and time.monotonic() > deadline:
                _end(process)
                return "TIMEOUT"


def _started(job: LocalJob, environment: dict[str, str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["bash", f"{job.folder}/job.sh"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Let the script end its steps in order; kill it where it takes too long."""
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _reason(job: LocalJob, name: str) -> str | None:
    if name == "TIMEOUT":
        return f"It took longer than {job.walltime} s."
    if name != "FAILED":
        return None
    try:
        return (job.path / ".gym_reason").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def main() -> None:
    run_dir = Path(sys.argv[1])
    jobs = [LocalJob(**content) for content in json.loads((run_dir / PLAN_FILE).read_text(encoding="utf-8"))]
    supervisor = Supervisor(jobs)
    signal.signal(signal.SIGTERM, supervisor.stop)
    signal.signal(signal.SIGINT, supervisor.stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    supervisor.run()


if __name__ == "__main__":
    main()
