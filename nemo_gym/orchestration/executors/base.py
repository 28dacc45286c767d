"""What every executor does: take jobs, tell what became of them, end them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from nemo_gym.orchestration.connection import Connection
from nemo_gym.orchestration.jobs import BenchmarkRecord, SubmissionRecord
from nemo_gym.orchestration.plan import RunPlan

ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "REFUSED"})
"""States that a job does not leave by itself."""


@dataclass(frozen=True)
class JobStatus:
    """Where a benchmark's job is. `attempt` counts the jobs it took so far, `measured` the records it has written."""

    benchmark: str
    state: str
    job_id: str | None = None
    attempt: int = 1
    seconds: int | None = None
    measured: int | None = None
    reason: str | None = None

    def data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class Executor(ABC):
    """`program` is one that has to be there where jobs are submitted."""

    name: ClassVar[str]
    program: ClassVar[str | None] = None

    @abstractmethod
    def submit(self, plan: RunPlan, connection: Connection) -> tuple[list[BenchmarkRecord], dict[str, Any]]:
        """Hand over the jobs whose files are in place: what became of each, and facts for the record."""

    @abstractmethod
    def statuses(self, record: SubmissionRecord, connection: Connection) -> list[JobStatus]:
        """Where the jobs are, in the record's order. Raises SubmissionError where nobody can say."""

    @abstractmethod
    def cancel(self, record: SubmissionRecord, benchmarks: Sequence[str], connection: Connection) -> list[str]:
        """End these benchmarks' jobs and those that would go on with them; the ones that were ended."""
