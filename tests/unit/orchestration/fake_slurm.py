"""`sbatch`, `srun`, `scontrol`, `sacct`, `squeue`, `scancel` of a cluster that is this machine; needs only Python.

The cluster's state is in $FAKE_SLURM: a folder for each job. Nodes are called 127.0.0.1, 127.0.0.2, …: names that are
addresses. A job is really run, in a session of its own; `<job>/request` ends it in the state that it names.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ["FAKE_SLURM"])
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL")
GRACE_SECONDS = 30.0


def main() -> int:
    program, words = sys.argv[1], sys.argv[2:]
    programs = {
        "sbatch": sbatch,
        "srun": srun,
        "scontrol": scontrol,
        "sacct": sacct,
        "squeue": squeue,
        "scancel": scancel,
        "run-job": run_job,
    }
    return programs[program](words)


def write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def state_of(job: str) -> str:
    path = STATE / job / "state"
    return path.read_text() if path.exists() else ""


def sbatch(words: list[str]) -> int:
    options = dict(word.lstrip("-").partition("=")[::2] for word in words if word.startswith("-"))
    script = Path(next(word for word in words if not word.startswith("-")))
    lines = [line.removeprefix("#SBATCH ") for line in script.read_text().splitlines() if line.startswith("#SBATCH ")]
    options = {**dict(line.lstrip("-").partition("=")[::2] for line in lines), **options}
    refused = os.environ.get("FAKE_SLURM_REFUSES", "")
    if refused and options["job-name"] == f"gym-{refused}":
        print(f"sbatch: error: Invalid account\nsbatch: error: {refused} is refused", file=sys.stderr)
        return 1
    number = 1
    while True:
        try:
            (STATE / str(number)).mkdir()
            break
        except FileExistsError:
            number += 1
    job = STATE / str(number)
    write(job / "options.json", json.dumps({**options, "script": str(script)}))
    write(job / "state", "PENDING")
    print("sbatch: a warning of the cluster", file=sys.stderr)
    print(f"{number};cluster" if "parsable" in options else f"Submitted batch job {number}")
    nodes = ",".join(f"127.0.0.{index}" for index in range(1, int(options["nodes"]) + 1))
    environment = {**os.environ, "SLURM_JOB_ID": str(number), "SLURM_JOB_NODELIST": nodes}
    subprocess.Popen(
        [sys.executable, "-S", "-E", __file__, "run-job", str(number)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return 0


def run_job(words: list[str]) -> int:
    job = STATE / words[0]
    options = json.loads((job / "options.json").read_text())
    state = awaited(job, options.get("dependency", ""))
    if state is None:
        state, code = executed(job, options)
        write(job / "code", str(code))
    write(job / "state", state)
    return 0


def awaited(job: Path, dependency: str) -> str | None:
    """Wait for the job before; the state this one ends in without being run, None where it is to be run."""
    before = dependency.removeprefix("afternotok:")
    while before and state_of(before) not in ENDED:
        if (job / "request").exists():
            return (job / "request").read_text()
        time.sleep(0.02)
    return "CANCELLED" if before and state_of(before) == "COMPLETED" else None


def executed(job: Path, options: dict[str, str]) -> tuple[str, int]:
    write(job / "state", "RUNNING")
    began = time.monotonic()
    with Path(options["output"].replace("%j", job.name)).open("ab") as log:
        process = subprocess.Popen(
            ["bash", options["script"]],
            cwd=options["chdir"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while process.poll() is None:
        if (job / "request").exists():
            end_session(process, hard=(job / "request").read_text() == "NODE_FAIL")
        time.sleep(0.02)
    write(job / "elapsed", os.environ.get("FAKE_SLURM_ELAPSED") or str(int(time.monotonic() - began)))
    if (job / "request").exists():
        return (job / "request").read_text(), 0
    return ("COMPLETED" if process.returncode == 0 else "FAILED"), process.returncode


def end_session(process: "subprocess.Popen[bytes]", *, hard: bool) -> None:
    """TERM to everything in the job, KILL to what is left after a while."""
    for number in (signal.SIGKILL,) if hard else (signal.SIGTERM, signal.SIGKILL):
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            try:
                if os.getsid(pid) == process.pid:
                    os.kill(pid, number)
            except OSError:
                continue
        try:
            process.wait(GRACE_SECONDS)
            return
        except subprocess.TimeoutExpired:
            continue


def srun(words: list[str]) -> int:
    options: dict[str, str] = {}
    while words[0].startswith("-"):
        name, _, value = words.pop(0).lstrip("-").partition("=")
        options[name] = value
    with (STATE / "srun.jsonl").open("a") as calls:
        calls.write(json.dumps({"options": options, "command": words}) + "\n")
    output = Path(options["output"]).open("wb") if "output" in options else None  # noqa: SIM115 - the tasks'
    names = [f"127.0.0.{index}" for index in range(1, 10)]
    names = options["nodelist"].split(",") if "nodelist" in options else names
    tasks = [
        subprocess.Popen(
            words,
            env={**os.environ, "SLURM_NODEID": str(index), "SLURMD_NODENAME": names[index]},
            stdout=output,
            stderr=output,
        )
        for index in range(int(options.get("ntasks", "1")))
    ]

    def pass_on(number: int, _: object) -> None:
        for task in tasks:
            task.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    return max(abs(task.wait()) for task in tasks)


def scontrol(words: list[str]) -> int:
    if words[:2] == ["show", "job"]:
        return shown_job(STATE / words[2])
    assert words[:2] == ["show", "hostnames"]
    print(words[2].replace(",", "\n"))
    return 0


def shown_job(job: Path) -> int:
    """The controller forgets a job after a while: here at once where FAKE_SLURM_FORGETS is set."""
    if os.environ.get("FAKE_SLURM_FORGETS") or not state_of(job.name):
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    code = (job / "code").read_text() if (job / "code").exists() else "0"
    print(f"JobId={job.name} JobName=gym\n   Priority=1 Nice=0\n   JobState={state_of(job.name)} Reason=None")
    print(f"   Requeue=1 Restarts=0 ExitCode={code}:0")
    return 0


def asked(words: list[str]) -> tuple[list[str], str]:
    return words[words.index("-j") + 1].split(","), words[words.index("-o") + 1]


def sacct(words: list[str]) -> int:
    jobs, fields = asked(words)
    if os.environ.get("FAKE_SLURM_NO_ACCOUNTS"):
        print("sacct: error: Slurm accounting storage is disabled", file=sys.stderr)
        return 1
    for job in jobs:
        if not state_of(job):
            continue
        read = {
            name: (STATE / job / name).read_text() if (STATE / job / name).exists() else "0"
            for name in ("elapsed", "code")
        }
        state = state_of(job) + (" by 0" if state_of(job) == "CANCELLED" else "")
        values = {"JobID": job, "State": state, "ElapsedRaw": read["elapsed"], "ExitCode": f"{read['code']}:0"}
        print("|".join(values[field] for field in fields.split(",")))
    return 0


def squeue(words: list[str]) -> int:
    jobs, form = asked(words)
    if os.environ.get("FAKE_SLURM_SILENT"):
        print("slurm_load_jobs error: Unable to contact slurm controller", file=sys.stderr)
        return 1
    for job in jobs:
        if state_of(job) in ("PENDING", "RUNNING"):
            print(form.replace("%i", job).replace("%T", state_of(job)))
    return 0


def scancel(words: list[str]) -> int:
    for job in words:
        if state_of(job) not in ENDED:
            write(STATE / job / "request", "CANCELLED")
    return 0


if __name__ == "__main__":
    sys.exit(main())
