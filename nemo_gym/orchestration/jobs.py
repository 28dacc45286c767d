"""The records of what was submitted: in the run's folder, and in an index of this user."""

import getpass
import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.config.replacing import write_private
from nemo_gym.config.roots import ROOT_DIR
from nemo_gym.orchestration.errors import JobRecordError
from nemo_gym.package_info import __version__

SCHEMA_VERSION = 1
RECORD_FILE = "gym-job.json"
CONFIG_FILE = "resolved-config.yaml"


class BenchmarkRecord(BaseModel):
    """A benchmark's job: its folder, and its id or why it has none."""

    benchmark: str
    job_dir: str
    job_id: str | None = None
    error: str | None = None


class SubmissionRecord(BaseModel):
    """One submission. `hostname` is the machine it was submitted on by SSH, None where that is the submitting one."""

    model_config = ConfigDict(extra="ignore")

    gym_job_id: str
    gym_version: str
    gym_commit: str | None = None
    submitted_at: str
    run_dir: str
    cluster: str
    executor: str
    submitted_by: str
    benchmarks: list[BenchmarkRecord]
    hostname: str | None = None
    executor_metadata: dict[str, Any] = Field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def text(self) -> str:
        return self.model_dump_json(indent=2) + "\n"

    @property
    def failed(self) -> list[BenchmarkRecord]:
        return [one for one in self.benchmarks if one.job_id is None]


def new_gym_job_id(now: datetime | None = None) -> str:
    """`gym-job-<UTC yyyymmddThhmmssZ>-<6 hex>`."""
    return f"gym-job-{(now or datetime.now(UTC)):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def submitted_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def submitter() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def gym_version() -> str:
    return __version__


def gym_commit() -> str | None:
    """The commit this Gym is at: of its installation, else of its checkout, `-dirty` where that has changes."""
    try:
        origin = json.loads(metadata.distribution("nemo-gym").read_text("direct_url.json") or "{}")
        commit = origin.get("vcs_info", {}).get("commit_id")
    except (metadata.PackageNotFoundError, ValueError):
        commit = None
    return commit or _head_of_checkout()


def _head_of_checkout() -> str | None:
    head = _git("rev-parse", "HEAD")
    if not head:
        return None
    return f"{head}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*words: str) -> str:
    if not (ROOT_DIR / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "-C", str(ROOT_DIR), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def index_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo-gym" / "jobs"


def write_index(record: SubmissionRecord) -> str | None:
    """Put a record into the index; why that was not possible, where it wasn't."""
    try:
        folder = index_folder()
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / f"{record.gym_job_id}.json", record.text())
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def read_record(path: Path) -> SubmissionRecord:
    """The record in a file. Raises JobRecordError for one that is none, or that a newer version wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobRecordError(f"{path} can't be read as a record of jobs: {error}.") from None
    version = content.get("schema_version", SCHEMA_VERSION) if isinstance(content, dict) else SCHEMA_VERSION
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise JobRecordError(
            f"{path} has schema version {version}, and this Gym reads up to {SCHEMA_VERSION}: use a newer one."
        )
    try:
        return SubmissionRecord.model_validate(content)
    except ValidationError as error:
        keys = ", ".join(sorted({".".join(map(str, issue["loc"])) or "everything" for issue in error.errors()}))
        raise JobRecordError(f"{path} is no record of jobs: wrong or missing {keys}.") from None


def indexed(unreadable: list[JobRecordError] | None = None) -> Iterator[SubmissionRecord]:
    """The records of this user, the newest first. What can't be read is left out, and told in `unreadable`."""
    folder = index_folder()
    paths = sorted(folder.glob("gym-job-*.json"), reverse=True) if folder.is_dir() else []
    for path in paths:
        try:
            yield read_record(path)
        except JobRecordError as error:
            if unreadable is not None:
                unreadable.append(error)


def find_record(name: str | None) -> SubmissionRecord:
    """The record that a name means: an id, a beginning or an end of one, a run's folder, or without one the newest.

    Raises JobRecordError where it means none or several.
    """
    if name and Path(name).is_dir():
        return read_record(Path(name) / RECORD_FILE)
    records = list(indexed())
    if not records:
        raise JobRecordError("No jobs are recorded here: submit some with `gym eval submit --config FILE`.")
    if name is None:
        return records[0]
    found = [record for record in records if record.gym_job_id == name]
    found = found or [one for one in records if one.gym_job_id.startswith(name) or one.gym_job_id.endswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise JobRecordError(f"{name!r} is none of the jobs recorded here; `gym jobs list` shows them.")
    raise JobRecordError(f"{name!r} means {', '.join(one.gym_job_id for one in found[:5])}: say more of it.")
