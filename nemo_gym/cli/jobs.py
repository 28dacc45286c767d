"""`gym jobs`: what became of the jobs that `gym eval submit` started."""

import json
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nemo_gym.cli.text_table import Column, table_lines
from nemo_gym.cli.utils import did_you_mean
from nemo_gym.errors import UsageError

if TYPE_CHECKING:
    from nemo_gym.orchestration.executors.base import JobStatus
    from nemo_gym.orchestration.jobs import BenchmarkRecord, SubmissionRecord

_NO_LIMIT = 100_000
"""Wider than any table: ids and reasons are read whole, and copied."""


def list_jobs(*, as_json: bool) -> None:
    """The submissions of this user that are recorded here, the newest first."""
    from nemo_gym.orchestration.errors import JobRecordError
    from nemo_gym.orchestration.jobs import indexed

    unreadable: list[JobRecordError] = []
    records = list(indexed(unreadable))
    for error in unreadable:
        print(f"Warning: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps([record.model_dump(mode="json") for record in records], indent=2))
        return
    if not records:
        print("No jobs are recorded here: submit some with `gym eval submit --config FILE`.")
    rows = [[one.gym_job_id, one.submitted_at, _where(one), _benchmarks(one)] for one in records]
    _print_table(["JOB", "SUBMITTED", "WHERE", "BENCHMARKS"], rows)


def status(name: str | None, *, as_json: bool) -> None:
    """Where each benchmark of a submission is; of the newest one without a name."""
    from nemo_gym.orchestration.jobs import find_record

    record = find_record(name)
    found = _statuses(record)
    if as_json:
        print(json.dumps({"gym_job_id": record.gym_job_id, "benchmarks": [one.data() for one in found]}, indent=2))
        return
    print(f"{record.gym_job_id} on {_where(record)}, in {record.run_dir}")
    rows = [
        [one.benchmark, one.state, one.job_id or "-", str(one.attempt), _time(one), _count(one), one.reason or ""]
        for one in found
    ]
    _print_table(["BENCHMARK", "STATE", "JOB", "ATTEMPT", "TIME", "RECORDS", ""], rows)


def cancel(name: str | None, benchmark: str | None) -> None:
    """End a submission's jobs, or those of one benchmark, with the jobs that would go on with them."""
    from nemo_gym.orchestration.connection import connected
    from nemo_gym.orchestration.executors import executor_of
    from nemo_gym.orchestration.jobs import find_record

    if name is None:
        raise UsageError("missing JOB: `gym jobs list` shows them.")
    record = find_record(name)
    chosen = [_the_benchmark(record, benchmark)] if benchmark else record.benchmarks
    with connected(record.hostname) as connection:
        ended = executor_of(record).cancel(record, [one.benchmark for one in chosen], connection)
    for one in ended:
        print(f"Cancelled {one}.")
    if not ended:
        print("Nothing was running or queued any more.")


def logs(name: str | None, benchmark: str | None, step: str | None, *, follow: bool) -> None:
    """Print the newest log of a step: the driver's, unless another one or `job` (the script itself) is named."""
    from nemo_gym.orchestration.connection import connected
    from nemo_gym.orchestration.jobs import find_record

    record = find_record(name)
    one = _the_benchmark(record, benchmark)
    with connected(record.hostname) as connection:
        listed = connection.run(f"ls -t {shlex.quote(one.job_dir + '/logs')}\n").out.split()
        files = {_step_of(file): file for file in reversed(listed) if file.endswith(".log")}
        wanted = step or ("driver" if "driver" in files or not files else "job")
        if wanted not in files:
            raise UsageError(_no_log(one.benchmark, wanted, list(files)))
        if step is None and wanted != "driver":
            print(f"The driver of {one.benchmark} hasn't begun; this is the log of its job.", file=sys.stderr)
        path = shlex.quote(f"{one.job_dir}/logs/{files[wanted]}")
        sys.stdout.flush()
        empty = f"[ -s {path} ] || echo {shlex.quote(f'Nothing is in {files[wanted]} yet.')} >&2"
        code = connection.show(f"{empty}\nexec tail -n +1 {'-F ' if follow else ''}{path}\n")
    if code and not follow:
        raise SystemExit(code)


def _statuses(record: "SubmissionRecord") -> "list[JobStatus]":
    from nemo_gym.orchestration.connection import connected
    from nemo_gym.orchestration.executors import executor_of

    with connected(record.hostname) as connection:
        return executor_of(record).statuses(record, connection)


def _the_benchmark(record: "SubmissionRecord", name: str | None) -> "BenchmarkRecord":
    names = [one.benchmark for one in record.benchmarks]
    if name is None and len(names) == 1:
        return record.benchmarks[0]
    if name is None:
        raise UsageError(f"missing --benchmark: {record.gym_job_id} has {', '.join(names)}.")
    if name not in names:
        raise UsageError(
            f"--benchmark {name!r} is none of {record.gym_job_id}, which has {', '.join(names)}."
            f"{did_you_mean(name, names)}"
        )
    return record.benchmarks[names.index(name)]


def _step_of(file: str) -> str:
    """`policy-123.log` is of the step `policy`."""
    return file.removesuffix(".log").rpartition("-")[0]


def _no_log(benchmark: str, step: str, steps: Sequence[str]) -> str:
    if not steps:
        return f"{benchmark} has written no log yet: `gym jobs status` says where it is."
    return (
        f"--step {step!r} has no log: {benchmark} has those of {', '.join(sorted(steps))}.{did_you_mean(step, steps)}"
    )


def _where(record: "SubmissionRecord") -> str:
    if record.executor == "local":
        return f"{record.cluster} (this machine)"
    return f"{record.cluster} ({record.hostname})" if record.hostname else record.cluster


def _benchmarks(record: "SubmissionRecord") -> str:
    return ", ".join(one.benchmark + ("" if one.job_id else " (failed)") for one in record.benchmarks)


def _time(one: "JobStatus") -> str:
    if one.seconds is None:
        return "-"
    minutes, seconds = divmod(one.seconds, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _count(one: "JobStatus") -> str:
    return "-" if one.measured is None else str(one.measured)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        for line in table_lines([Column(title) for title in header], rows, _NO_LIMIT):
            print(line)
