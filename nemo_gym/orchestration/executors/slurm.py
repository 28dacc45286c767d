"""Jobs of a Slurm cluster, by its own programs."""

import re
import secrets
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.orchestration.connection import Connection
from nemo_gym.orchestration.errors import SubmissionError
from nemo_gym.orchestration.executors.base import Executor, JobStatus
from nemo_gym.orchestration.jobs import BenchmarkRecord, SubmissionRecord
from nemo_gym.orchestration.plan import RunPlan
from nemo_gym.orchestration.script.resuming import CANCELLED, CHAIN, ENDS, SUCCESSOR

_JOB_ID = re.compile(r"(\d+)(?:;\S*)?")
_LINE_BREAK = "\x1f"
_ACTIVE = frozenset({"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"})

_SUBMIT = r"""submit() {  # benchmark, script
  local said verdict=queued
  said="$(sbatch --parsable "$2" 2>&1)" || verdict=refused
  printf '%s\t%s\t%s\t%s\n' @MARK@ "$verdict" "$1" "$(printf '%s' "$said" | tr '\n\t' '\037 ')"
}"""

_LOOK = r"""ids=
tell() { printf '%s\t%s\t%s\t%s\n' @MARK@ "$1" "$2" "$3"; }
look() {  # benchmark, folder, job
  local chain next
  chain="$(tr '\n' ' ' < "$2/@CHAIN@")"
  next="$(cat "$2/@SUCCESSOR@")"
  tell chain "$1" "$chain"
  tell successor "$1" "$next"
  tell reason "$1" "$(head -n 1 "$2/.gym_reason" | tr '\t' ' ')"
  tell measured "$1" "$(wc -l < "$2/artifacts/rollouts.jsonl")"
  tell noted "$1" "$(tr '\n' ';' < "$2/@ENDS@")"
  ids="$ids $3 $chain $next"
} 2>/dev/null"""

_ASK = r"""ids="$(printf '%s\n' $ids | sort -un | paste -sd, -)"
sacct -X -n -P -j "$ids" -o JobID,State,ElapsedRaw | while IFS= read -r line; do tell sacct - "$line"; done
if ! queue="$(squeue -h -j "$ids" -o '%i|%T' 2>&1)"; then
  case "$queue" in *"Invalid job id"*) ;; *) tell silent - "$(printf %s "$queue" | tail -n 1 | tr '\t' ' ')" ;; esac
fi
printf '%s\n' "$queue" | while IFS= read -r line; do tell squeue - "$line"; done"""


class SlurmExecutor(Executor):
    """Scripts are run through the connection; what they say for us is on lines that begin with a random mark."""

    name = "slurm"
    program = "sbatch"

    def submit(self, plan: RunPlan, connection: Connection) -> tuple[list[BenchmarkRecord], dict[str, Any]]:
        mark = _new_mark()
        lines = [_SUBMIT.replace("@MARK@", mark)]
        lines += [f"submit {job.benchmark} {shlex.quote(job.folder + '/job.sh')}" for job in plan.jobs]
        answer = connection.run("\n".join(lines) + "\n")
        said = {benchmark: (verdict, text) for verdict, benchmark, text in _marked(answer.out, mark, 3)}
        return [_outcome(job.benchmark, job.folder, said.get(job.benchmark)) for job in plan.jobs], {}

    def statuses(self, record: SubmissionRecord, connection: Connection) -> list[JobStatus]:
        queued = [one for one in record.benchmarks if one.job_id]
        seen = _look(queued, connection) if queued else _Seen()
        return [_status(one, seen) for one in record.benchmarks]

    def cancel(self, record: SubmissionRecord, benchmarks: Sequence[str], connection: Connection) -> list[str]:
        queued = [one for one in record.benchmarks if one.job_id and one.benchmark in benchmarks]
        if not queued:
            return []
        seen = _look(queued, connection)
        active = [one for one in queued if not _status(one, seen).has_ended]
        ids = [job_id for one in active for job_id in reversed(seen.jobs_of(one)) if seen.is_active(job_id)]
        if not ids:
            return []
        marks = [shlex.quote(f"{one.job_dir}/{CANCELLED}") for one in active]
        answer = connection.run(f"touch {' '.join(marks)}\nscancel {' '.join(ids)}\n")
        if answer.code:
            raise SubmissionError(f"scancel {' '.join(ids)} failed: {answer.err.strip() or 'it says nothing more'}.")
        return [one.benchmark for one in active]


@dataclass
class _Seen:
    """What the cluster and the folders say: chains and successors by benchmark, states and seconds by job.

    `noted` is what jobs wrote down themselves as they ended, for clusters without accounts; `silence` is why the
    controller doesn't answer.
    """

    chains: dict[str, list[str]] = field(default_factory=dict)
    successors: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    in_queue: dict[str, str] = field(default_factory=dict)
    accounted: dict[str, tuple[str, int]] = field(default_factory=dict)
    noted: dict[str, tuple[str, int]] = field(default_factory=dict)
    silence: str | None = None

    def jobs_of(self, one: BenchmarkRecord) -> list[str]:
        """The jobs of a benchmark, oldest first, with the one that waits to go on."""
        ids = self.chains.get(one.benchmark) or [str(one.job_id)]
        successor = self.successors.get(one.benchmark)
        return [*ids, *([successor] if successor and successor not in ids else [])]

    def is_active(self, job_id: str) -> bool:
        """Whether it is in the queue; while nobody tells that, by its account."""
        return job_id in self.in_queue or (self.silence is not None and self.state(job_id) in _ACTIVE)

    def state(self, job_id: str) -> str:
        return self.in_queue.get(job_id) or self._ended(job_id)[0]

    def seconds(self, job_id: str) -> int:
        return self._ended(job_id)[1]

    def _ended(self, job_id: str) -> tuple[str, int]:
        return self.accounted.get(job_id) or self.noted.get(job_id) or ("UNKNOWN", 0)


def _new_mark() -> str:
    return f"gym-said-{secrets.token_hex(6)}"


def _marked(text: str, mark: str, fields: int) -> Iterator[tuple[str, ...]]:
    for line in text.splitlines():
        parts = line.split("\t", fields)
        if parts[0] == mark and len(parts) == fields + 1:
            yield tuple(parts[1:])


def _outcome(benchmark: str, folder: str, said: tuple[str, str] | None) -> BenchmarkRecord:
    if said is None:
        why = "the connection ended before it was submitted, or before that was told: look with squeue"
        return BenchmarkRecord(benchmark=benchmark, job_dir=folder, error=why)
    verdict, text = said
    lines = [line.strip() for line in text.split(_LINE_BREAK) if line.strip()]
    found = [matched[1] for line in lines if (matched := _JOB_ID.fullmatch(line))]
    if verdict == "queued" and found:
        return BenchmarkRecord(benchmark=benchmark, job_dir=folder, job_id=found[-1])
    return BenchmarkRecord(benchmark=benchmark, job_dir=folder, error=" ".join(lines) or "sbatch says nothing more")


def _look(queued: list[BenchmarkRecord], connection: Connection) -> _Seen:
    """Read the chains, then ask for all jobs of them at once."""
    mark = _new_mark()
    lines = [
        _LOOK.replace("@MARK@", mark)
        .replace("@CHAIN@", CHAIN)
        .replace("@SUCCESSOR@", SUCCESSOR)
        .replace("@ENDS@", ENDS),
        *(f"look {one.benchmark} {shlex.quote(one.job_dir)} {one.job_id}" for one in queued),
        _ASK,
    ]
    answer = connection.run("\n".join(lines) + "\n")
    seen = _Seen()
    for kind, benchmark, text in _marked(answer.out, mark, 3):
        _take(seen, kind, benchmark, text.strip())
    if not seen.in_queue and not seen.accounted and (seen.silence is not None or not seen.noted):
        why = seen.silence or (answer.err.strip().splitlines() or ["sacct and squeue know none of them"])[-1]
        raise SubmissionError(f"Slurm says nothing about the jobs: {why}.")
    return seen


def _take(seen: _Seen, kind: str, benchmark: str, text: str) -> None:
    parts = text.split("|")
    if kind == "chain":
        seen.chains[benchmark] = text.split()
    elif kind == "successor" and text:
        seen.successors[benchmark] = text
    elif kind == "reason" and text:
        seen.reasons[benchmark] = text
    elif kind == "measured" and text.isdigit():
        seen.measured[benchmark] = int(text)
    elif kind == "sacct" and len(parts) == 3:
        seen.accounted[parts[0]] = (parts[1].split(" ")[0], int(parts[2] or 0))
    elif kind == "squeue" and len(parts) == 2:
        seen.in_queue[parts[0]] = parts[1]
    elif kind == "silent":
        seen.silence = text or "squeue failed"
    elif kind == "noted":
        seen.noted.update(_notes(text))


def _notes(text: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Ends that jobs noted: `job exit-code seconds` each."""
    for note in text.split(";"):
        words = note.split()
        if len(words) == 3 and all(word.isdigit() for word in words):
            yield words[0], ("COMPLETED" if words[1] == "0" else "FAILED", int(words[2]))


def _status(one: BenchmarkRecord, seen: _Seen) -> JobStatus:
    if one.job_id is None:
        return JobStatus(one.benchmark, "REFUSED", attempt=0, reason=one.error)
    jobs = seen.jobs_of(one)
    worked = seen.chains.get(one.benchmark) or [one.job_id]
    current = worked[-1]
    if not seen.is_active(current) and seen.state(current) not in ("COMPLETED", "CANCELLED"):
        current = next((job for job in jobs[len(worked) :] if seen.is_active(job)), current)
    state = seen.state(current)
    return JobStatus(
        one.benchmark,
        state,
        current,
        jobs.index(current) + 1,
        sum(seen.seconds(job) for job in jobs),
        seen.measured.get(one.benchmark),
        None if state in ("COMPLETED", "RUNNING", "PENDING") else seen.reasons.get(one.benchmark),
    )
