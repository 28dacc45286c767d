"""Who runs jobs: a Slurm cluster, or this machine."""

from nemo_gym.orchestration.api import SubmitConfig
from nemo_gym.orchestration.errors import JobRecordError
from nemo_gym.orchestration.executors.base import Executor
from nemo_gym.orchestration.executors.local import LocalExecutor
from nemo_gym.orchestration.executors.slurm import SlurmExecutor
from nemo_gym.orchestration.jobs import SubmissionRecord

_EXECUTORS: dict[str, type[Executor]] = {"slurm": SlurmExecutor, "local": LocalExecutor}


def executor_for(config: SubmitConfig) -> Executor:
    return _EXECUTORS[config.the_compute.type]()


def executor_of(record: SubmissionRecord) -> Executor:
    """The executor that a record names. Raises JobRecordError where this Gym doesn't have it."""
    if record.executor not in _EXECUTORS:
        raise JobRecordError(f"{record.gym_job_id} was submitted to {record.executor!r}, which this Gym doesn't know.")
    return _EXECUTORS[record.executor]()
