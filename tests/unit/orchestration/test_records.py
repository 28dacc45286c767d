"""The records of submissions, and finding them again."""

import json
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from nemo_gym.orchestration import jobs
from nemo_gym.orchestration.errors import JobRecordError
from nemo_gym.orchestration.jobs import BenchmarkRecord, SubmissionRecord, find_record, read_record, write_index


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nemo-gym" / "jobs"


def record(name: str = "gym-job-20261130T000000Z-aaaaaa") -> SubmissionRecord:
    return SubmissionRecord(
        gym_job_id=name,
        gym_version="1",
        submitted_at="2026-11-30T00:00:00+00:00",
        run_dir="/runs/x",
        cluster="c",
        executor="slurm",
        submitted_by="me",
        benchmarks=[BenchmarkRecord(benchmark="b", job_dir="/runs/x/b", job_id="1")],
    )


def test_an_id_says_when_and_is_unique() -> None:
    made = jobs.new_gym_job_id(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert re.fullmatch(r"gym-job-20260102T030405Z-[0-9a-f]{6}", made)
    assert made != jobs.new_gym_job_id(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def test_a_record_is_read_back_and_has_the_fields_of_the_schema(index: Path) -> None:
    assert write_index(record()) is None
    path = index / f"{record().gym_job_id}.json"
    assert read_record(path) == record() and path.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(path.read_text())) == {
        "gym_job_id",
        "gym_version",
        "gym_commit",
        "submitted_at",
        "run_dir",
        "cluster",
        "executor",
        "submitted_by",
        "benchmarks",
        "hostname",
        "executor_metadata",
        "schema_version",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"schema_version": 2}), "has schema version 2, and this Gym reads up to 1"),
        ("{", "can't be read as a record"),
        ("[]", "is no record of jobs"),
        ("{}", "wrong or missing benchmarks, cluster"),
    ],
)
def test_what_is_no_record_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(JobRecordError, match=re.escape(said)):
        read_record(path)


def test_older_records_with_further_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**record().model_dump(), "schema_version": 0, "more": 1}))
    assert read_record(path).gym_job_id == record().gym_job_id


def test_a_name_means_one_record(tmp_path: Path, index: Path) -> None:
    with pytest.raises(JobRecordError, match="No jobs are recorded here"):
        find_record(None)
    first, second = record("gym-job-20261130T000000Z-aaaaaa"), record("gym-job-20261130T000001Z-bbbbbb")
    for one in (first, second):
        write_index(one)
    (index / "gym-job-broken.json").write_text("{")
    assert find_record(None) == second, "the newest"
    assert find_record("aaaaaa") == first == find_record("gym-job-20261130T000000")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gym-job.json").write_text(first.text())
    assert find_record(str(tmp_path / "run")) == first
    with pytest.raises(JobRecordError, match="say more of it"):
        find_record("gym-job-2026")
    with pytest.raises(JobRecordError, match="is none of the jobs"):
        find_record("nothing")


def test_an_index_that_can_not_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "cache" in str(write_index(record()))


def test_the_commit_of_a_checkout_says_whether_it_has_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        settings = ("-c", "user.name=n", "-c", "user.email=e@e")
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *settings, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    monkeypatch.setattr(jobs, "ROOT_DIR", tmp_path)
    monkeypatch.setattr(metadata, "distribution", _none)
    assert jobs.gym_commit() is None
    git("init", "-q")
    (tmp_path / "f").write_text("1")
    git("add", "f")
    git("commit", "-qm", "m")
    assert jobs.gym_commit() == git("rev-parse", "HEAD")
    (tmp_path / "f").write_text("2")
    assert jobs.gym_commit() == git("rev-parse", "HEAD") + "-dirty"


def _none(name: str) -> None:
    raise metadata.PackageNotFoundError(name)


def test_a_whole_id_means_its_own_record_even_where_others_begin_like_it(index: Path) -> None:
    for name in ("gym-job-1", "gym-job-12"):
        write_index(record(name))
    assert find_record("gym-job-1").gym_job_id == "gym-job-1"
