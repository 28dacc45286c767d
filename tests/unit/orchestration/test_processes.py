"""Which processes a job's own are, how its script hands on how they ended, and connections that are closed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_gym.orchestration.connection import Ssh, connected
from nemo_gym.orchestration.executors import slurm
from nemo_gym.orchestration.jobs import BenchmarkRecord
from nemo_gym.orchestration.local_jobs import MARK, end_groups, is_the_process, started_at
from nemo_gym.orchestration.script.functions import FUNCTIONS


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A job's folder."""
    (tmp_path / "logs").mkdir()
    yield tmp_path


def sleeper(**variables: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "300"], start_new_session=True, env={**os.environ, **variables})


def test_a_process_that_only_waits_to_be_buried_is_no_supervisor() -> None:
    process = sleeper()
    began = started_at(process.pid)
    assert is_the_process(process.pid, began)
    assert not is_the_process(process.pid, began - 100.0), "another one had the number then"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_the_process(process.pid, began)
    process.wait()


def test_only_groups_that_carry_the_jobs_mark_are_ended(folder: Path) -> None:
    """A pid that was noted may have become somebody else's."""
    own, other, strange = sleeper(**{MARK: str(folder)}), sleeper(**{MARK: "/another"}), sleeper()
    try:
        (folder / ".gym_pids").write_text("".join(f"{each.pid}\n" for each in (own, other, strange)))
        end_groups(folder)
        assert own.wait(20) == -signal.SIGKILL
        assert (other.poll(), strange.poll()) == (None, None)
    finally:
        for each in (own, other, strange):
            each.kill()
            each.wait()


def test_a_job_that_is_stopped_ends_as_its_driver_does(folder: Path) -> None:
    driver = f"""bash -c 'trap "exit 75" TERM; touch {folder}/up; while :; do sleep 0.05; done'"""
    started = f"{driver} &\ngym_driver=$!\nuntil [ -e {folder}/up ]; do sleep 0.05; done\necho up\nwait\n"
    script = f"gym_dir={folder}\ngym_run=1\n{FUNCTIONS}\n{started}"
    job = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None and job.stdout.readline() == "up\n"
    job.terminate()
    assert job.wait(60) == 75
    job.stdout.close()


def test_an_ssh_connection_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/said\ncat > /dev/null\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with connected("login") as connection:
        assert isinstance(connection, Ssh)
        connection.run("true\n")
    asked, closed = (tmp_path / "said").read_text().splitlines()
    assert asked.endswith("login bash -s") and closed.endswith("-O exit login")


def test_what_a_cluster_prints_can_not_be_taken_for_our_own_lines() -> None:
    assert slurm._new_mark() != slurm._new_mark()


def test_the_time_of_all_jobs_of_a_chain_is_told() -> None:
    seen = slurm._Seen(chains={"b": ["1", "2"]}, accounted={"1": ("TIMEOUT", 60), "2": ("COMPLETED", 5)})
    status = slurm._status(BenchmarkRecord(benchmark="b", job_dir="/b", job_id="1"), seen)
    assert (status.state, status.job_id, status.attempt, status.seconds) == ("COMPLETED", "2", 2, 65)
