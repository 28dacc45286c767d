"""A submission: plan, check there, send, hand over, record."""

import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from nemo_gym.orchestration.api import SubmitConfig
from nemo_gym.orchestration.connection import Connection, connected
from nemo_gym.orchestration.errors import SubmissionError, SubmitConfigError
from nemo_gym.orchestration.executors import executor_for
from nemo_gym.orchestration.jobs import (
    CONFIG_FILE,
    RECORD_FILE,
    SubmissionRecord,
    gym_commit,
    gym_version,
    new_gym_job_id,
    submitted_now,
    submitter,
    write_index,
)
from nemo_gym.orchestration.plan import COLLECTOR_CONFIG, RunPlan
from nemo_gym.orchestration.script.job import job_script
from nemo_gym.orchestration.showing import shown
from nemo_gym.orchestration.values import checked_path


def plan_of(config: SubmitConfig, environment: Mapping[str, str]) -> RunPlan:
    """The plan of a checked config, under a new id. The output path of a machine at hand is made absolute."""
    path = config.job.output_path
    hostname = config.the_compute.hostname if config.the_compute.type == "slurm" else None
    if not path.startswith("/"):
        if hostname is not None:
            raise SubmitConfigError(f"job.output_path {path} must be absolute: {hostname} has another working folder.")
        path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - symlinks kept
        try:
            checked_path(path)
        except ValueError as error:
            raise SubmitConfigError(f"job.output_path: {error}.") from None
    placed = config.model_copy(update={"job": config.job.model_copy(update={"output_path": path})})
    return RunPlan.of(placed, new_gym_job_id(), environment, user=submitter())


def files_of(plan: RunPlan, config: SubmitConfig) -> dict[str, tuple[str, int]]:
    """Every file of a run by its path below the run's folder, with its text and mode."""
    files = {CONFIG_FILE: (yaml.safe_dump(shown(config), sort_keys=False, allow_unicode=True), 0o600)}
    for job in plan.jobs:
        files[f"{job.benchmark}/job.sh"] = (job_script(job), 0o600)
        if job.collector_config is not None:
            files[f"{job.benchmark}/{COLLECTOR_CONFIG}"] = (job.collector_config, 0o600)
        for path, text in job.private_files().items():
            files[f"{job.benchmark}/{path}"] = (text, 0o600)
    return files


def submit(config: SubmitConfig, environment: Mapping[str, str]) -> tuple[SubmissionRecord, list[str]]:
    """Submit one job for each benchmark. Returns the record and warnings about it.

    Raises SubmitConfigError and SubmissionError. A benchmark whose job is refused is told in the record.
    """
    plan = plan_of(config, environment)
    executor = executor_for(config)
    hostname = config.the_compute.hostname if executor.name == "slurm" else None
    with connected(hostname) as connection:
        _check_there(connection, plan, executor.program)
        _send(connection, plan, config)
        outcomes, facts = executor.submit(plan, connection)
        record = SubmissionRecord(
            gym_job_id=plan.gym_job_id,
            gym_version=gym_version(),
            gym_commit=gym_commit(),
            submitted_at=submitted_now(),
            run_dir=plan.run_dir,
            cluster=config.cluster,
            executor=executor.name,
            submitted_by=submitter(),
            benchmarks=outcomes,
            hostname=hostname,
            executor_metadata=facts,
        )
        unindexed = write_index(record)
        _write_there(connection, record)
    return record, [f"The record is not in the index, {unindexed}."] if unindexed else []


def _check_there(connection: Connection, plan: RunPlan, program: str | None) -> None:
    """Raise SubmissionError when a mount's source, the program or the output folder is not there."""
    mark = f"gym-check-{plan.gym_job_id}"
    folders = [f"{job.folder}/{name}" for job in plan.jobs for name in ("logs", "artifacts", "otel", "env")]
    private = [folder for folder in folders if folder.endswith("/env")]
    lines = [
        "failed=",
        f'tell() {{ failed=1; printf \'%s\\t%s\\t%s\\n\' {mark} "$1" "$2"; }}',
        *(f"[ -e {shlex.quote(path)} ] || tell missing {shlex.quote(path)}" for path in plan.needed_files()),
        *([f"command -v {program} >/dev/null || tell program {program}"] if program else []),
        '[ -z "$failed" ] || exit 0',
        f"mkdir -p {shlex.join(folders)} && chmod 700 {shlex.join(private)} || tell folder {shlex.quote(plan.run_dir)}",
    ]
    answer = connection.run("\n".join(lines) + "\n")
    found: dict[str, list[str]] = {}
    for line in answer.out.splitlines():
        parts = line.split("\t")
        if parts[0] == mark and len(parts) == 3:
            found.setdefault(parts[1], []).append(parts[2])
    if "missing" in found:
        raise SubmissionError(
            f"There is no {' and no '.join(found['missing'])} where the jobs run: mend the mounts and images."
        )
    if "program" in found:
        raise SubmissionError(f"There is no program {program} there: submit from a login node, or name it in hostname.")
    if "folder" in found or answer.code:
        why = answer.err.strip().splitlines()
        raise SubmissionError(f"{plan.run_dir} can't be made: {(why or ['the shell ended early'])[-1]}.")


def _send(connection: Connection, plan: RunPlan, config: SubmitConfig) -> None:
    with tempfile.TemporaryDirectory(prefix="gym-submit-") as place:
        root = Path(place) / "run"
        for job in plan.jobs:
            for name in ("logs", "artifacts", "otel"):
                (root / job.benchmark / name).mkdir(parents=True)
            (root / job.benchmark / "env").mkdir(mode=0o700)
        for path, (text, mode) in files_of(plan, config).items():
            target = root / path
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        connection.send(root, plan.run_dir)


def _write_there(connection: Connection, record: SubmissionRecord) -> None:
    path = shlex.quote(f"{record.run_dir}/{RECORD_FILE}")
    text = shlex.quote(record.text())
    answer = connection.run(f"printf %s {text} > {path}\n")
    if answer.code:
        ids = ", ".join(one.job_id for one in record.benchmarks if one.job_id)
        raise SubmissionError(f"The jobs {ids} are queued, but {path} can't be written: {answer.err.strip()}.")
