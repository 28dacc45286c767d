"""The executor `local`: the same file, run as processes of this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemo_gym.orchestration.local_jobs import LocalJob
from nemo_gym.orchestration.local_supervisor import Supervisor
from tests.e2e.harness import is_alive, question
from tests.ports import free_port
from tests.unit.orchestration.configs import VLLM, content, write
from tests.unit.orchestration.conftest import ROOT, Site, wait_until

LOCAL = {"type": "local"}
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return found


def folders(record: dict[str, Any]) -> list[Path]:
    return [Path(one["job_dir"]) for one in record["benchmarks"]]


def wait_for_end(folder: Path) -> dict[str, Any]:
    def told() -> str:
        return "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in (folder / "logs").glob("*.log"))

    wait_until(lambda: state(folder)["name"] in _ENDED, told)
    return state(folder)


def commands(site: Site, *, compute: dict[str, Any] | None = None, **benchmarks: Any) -> Path:
    """A config of benchmarks that are commands of a shell."""
    data = content(services={}, compute={**LOCAL, **(compute or {})}, job={"output_path": str(site.folder / "runs")})
    data["driver"]["benchmarks"] = {
        name: {"command": value} if isinstance(value, str) else value for name, value in benchmarks.items()
    }
    return write(site.folder, data)


def test_a_model_and_a_benchmark_run_here(site: Site) -> None:
    site.program(
        "vllm",
        f"""while [ "$1" != --port ]; do shift; done
cd {ROOT} && exec "{sys.executable}" -m tests.mock_provider --port "$2" --script {site.folder}/model.json""",
    )
    (site.folder / "model.json").write_text(json.dumps({"default": "\\boxed{A}"}))
    (site.folder / "rows.jsonl").write_text("".join(json.dumps(question(number)) + "\n" for number in range(3)))
    run = {
        "config_paths": ["resources_servers/mcqa/configs/mcqa.yaml"],
        "input_jsonl_fpath": "rows.jsonl",
        "head_server": {"port": free_port()},
    }
    service = {
        **VLLM,
        "port": free_port(),
        "node_pool": "gpu",
        "health_check": {"path": "/v1/models"},
        "env": {"SECRET_KEY": "host:MY_KEY"},
    }
    data = content(
        services={"policy": service},
        driver={"policy_model": "policy", "benchmarks": {"mcqa": {"run": run, "resumable": True}}},
        job={"output_path": "runs"},
    )
    path = write(site.folder, data)
    ended = site.gym("eval", "submit", "-c", str(path), "compute.cluster.type=local", "--json", MY_KEY="sk-hidden-1")
    assert ended.code == 0, ended.err
    assert "Containers and mounts are not used here" in ended.err
    record = json.loads(ended.out)
    (folder,) = folders(record)
    assert wait_for_end(folder)["name"] == "COMPLETED"
    records = [json.loads(line) for line in (folder / "artifacts" / "rollouts.jsonl").read_text().splitlines()]
    assert [one["reward"] for one in records] == [1.0] * 3
    assert site.status()[0] | {"seconds": 0, "job_id": ""} == {
        "benchmark": "mcqa",
        "state": "COMPLETED",
        "job_id": "",
        "attempt": 1,
        "seconds": 0,
        "measured": 3,
        "reason": None,
    }
    for file in (path for path in Path(record["run_dir"]).rglob("*") if path.is_file()):
        assert file.name == "policy.env" or "sk-hidden-1" not in file.read_text(errors="replace"), file
    pids = [int(line) for line in (folder / ".gym_pids").read_text().split()]
    assert len(pids) == 2 and not any(map(is_alive, pids)), "service and driver are gone"


def test_benchmarks_run_one_after_the_other(site: Site) -> None:
    path = commands(site, one="test ! -e ../two/logs/driver-1.log; echo one", two="exit 4", three="test -e submit.yaml")
    record = site.submit(path)
    one, two, three = folders(record)
    assert wait_for_end(three)["name"] == "COMPLETED", "commands run where they were submitted"
    assert (state(one)["name"], state(two)["name"]) == ("COMPLETED", "FAILED")
    assert state(two)["reason"] == "The driver ended with exit code 4."
    assert site.gym("jobs", "logs", "--benchmark", "one").out == "one\n"
    assert "missing --benchmark" in site.gym("jobs", "logs").error
    assert "Did you mean `three`?" in site.gym("jobs", "logs", "--benchmark", "thre").error


def supervised(folder: Path, script: str, **settings: Any) -> dict[str, Any]:
    """How a job ends whose script is this one."""
    (folder / "logs").mkdir()
    (folder / "job.sh").write_text(script)
    Supervisor([LocalJob("bench", str(folder), **settings)]).run()
    return state(folder)


def test_failures_are_retried_so_often_and_no_more(tmp_path: Path) -> None:
    ended = supervised(tmp_path, f"echo why > {tmp_path}/.gym_reason; exit 3", max_retries=2)
    assert (ended["name"], ended["attempt"], ended["reason"]) == ("FAILED", 3, "why")
    assert sorted(log.name for log in (tmp_path / "logs").iterdir()) == ["job-1.log", "job-2.log", "job-3.log"]


def test_a_run_that_stopped_resumably_is_no_failure(tmp_path: Path) -> None:
    ended = supervised(tmp_path, '[ "$GYM_LOCAL_RUN" -gt 3 ] || exit 75', max_retries=0)
    assert (ended["name"], ended["attempt"]) == ("COMPLETED", 4)


def test_time_is_added_up_until_there_is_no_more(tmp_path: Path) -> None:
    ended = supervised(tmp_path, "sleep 0.4; exit 75", max_retries=0, max_walltime=1)
    assert ended["name"] == "FAILED" and 2 <= ended["attempt"] <= 3


def test_a_job_that_is_not_resumable_is_tried_once(tmp_path: Path) -> None:
    assert supervised(tmp_path, "exit 75")["attempt"] == 1


def test_a_walltime_ends_a_job_with_all_it_started(site: Site) -> None:
    pid_file = site.folder / "pid"
    path = commands(site, compute={"walltime": "00:01"}, slow=f"sleep 600 & echo $! > {pid_file}; wait")
    (folder,) = folders(site.submit(path))
    ended = wait_for_end(folder)
    assert (ended["name"], ended["reason"]) == ("TIMEOUT", "It took longer than 1 s.")
    assert not is_alive(int(pid_file.read_text()))


def test_cancelling_ends_what_runs_and_what_waits(site: Site) -> None:
    pid_file = site.folder / "pid"
    path = commands(site, slow=f"echo $$ > {pid_file}; exec sleep 600", later="true")
    record = site.submit(path)
    wait_until(pid_file.exists)
    assert site.gym("jobs", "cancel", record["gym_job_id"]).out == "Cancelled slow.\nCancelled later.\n"
    assert [one["state"] for one in site.status()] == ["CANCELLED", "CANCELLED"]
    assert not is_alive(int(pid_file.read_text()))
    assert not (folders(record)[1] / "logs" / "driver-1.log").exists()


def test_one_benchmark_can_be_cancelled(site: Site) -> None:
    pid_file = site.folder / "pid"
    record = site.submit(commands(site, slow=f"echo $$ > {pid_file}; exec sleep 600", later="true"))
    wait_until(pid_file.exists)
    assert site.gym("jobs", "cancel", record["gym_job_id"], "--benchmark", "slow").out == "Cancelled slow.\n"
    assert wait_for_end(folders(record)[1])["name"] == "COMPLETED"


def test_a_supervisor_that_died_is_told_and_its_job_can_be_ended(site: Site) -> None:
    pid_file = site.folder / "pid"
    record = site.submit(commands(site, slow=f"echo $$ > {pid_file}; exec sleep 600"))
    wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()))
    os.kill(record["executor_metadata"]["supervisor"], signal.SIGKILL)
    wait_until(lambda: site.status()[0]["state"] == "FAILED")
    assert "Its supervisor died" in site.status()[0]["reason"]
    assert site.gym("jobs", "cancel", record["gym_job_id"]).out == "Cancelled slow.\n"
    assert not is_alive(int(pid_file.read_text()))
    assert site.status()[0]["state"] == "CANCELLED"


def test_what_is_written_can_be_followed(site: Site) -> None:
    path = commands(site, talk="echo first; until [ -e go ]; do sleep 0.05; done; echo second")
    record = site.submit(path)
    (folder,) = folders(record)
    log = folder / "logs" / "driver-1.log"
    wait_until(lambda: log.exists() and "first" in log.read_text())
    following = subprocess.Popen(
        [str(site.bin / "gym"), "jobs", "logs", "-f"],
        cwd=site.folder,
        env=site.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    (site.folder / "go").touch()
    assert following.stdout.readline() == "second\n"
    following.send_signal(signal.SIGINT)
    following.wait(30)
    following.stdout.close()


def test_without_any_jobs_it_is_said_how_to_have_some(site: Site) -> None:
    assert "No jobs are recorded here" in site.gym("jobs", "list").out
    ended = site.gym("jobs", "status")
    assert ended.code == 1 and "No jobs are recorded here" in ended.error
    assert site.gym("jobs", "cancel").code == 2


@pytest.mark.parametrize("words", [("status", "nothing"), ("logs", "nothing"), ("cancel", "nothing")])
def test_a_job_that_is_none_is_one_sentence(site: Site, words: tuple[str, str]) -> None:
    site.submit(commands(site, one="true"))
    ended = site.gym("jobs", *words)
    assert (
        ended.code == 1
        and ended.error == "Error: 'nothing' is none of the jobs recorded here; `gym jobs list` shows them."
    )


def serving(site: Site, port: int, command: str) -> Path:
    """A config of one model and one benchmark, a command."""
    service = {"type": "vllm", "model": "org/model", "port": port, "health_check": {"path": "/v1/models"}}
    data = content(
        services={"policy": service},
        compute=LOCAL,
        driver={"policy_model": "policy", "benchmarks": {"bench": {"command": command}}},
        job={"output_path": str(site.folder / "runs")},
    )
    return write(site.folder, data)


@pytest.fixture
def model(site: Site) -> Site:
    site.program(
        "vllm",
        f"""while [ "$1" != --port ]; do shift; done
cd {ROOT} && exec "{sys.executable}" -m tests.mock_provider --port "$2\"""",
    )
    return site


def test_two_submissions_that_want_one_port_run_one_after_the_other(model: Site) -> None:
    """The second job's health was answered by the first one's model, and its benchmark measured that."""
    go = model.folder / "go"
    path = serving(model, free_port(), f"touch {model.folder}/began; until [ -e {go} ]; do sleep 0.1; done")
    first = model.submit(path)
    (one,) = folders(first)
    wait_until((model.folder / "began").exists)
    (two,) = folders(model.submit(path))
    wait_until(lambda: state(two)["reason"] is not None)
    assert (state(two)["name"], state(one)["name"]) == ("PENDING", "RUNNING")
    assert state(two)["reason"].endswith(f", which {first['gym_job_id']} uses.")
    go.touch()
    assert (wait_for_end(one)["name"], wait_for_end(two)["name"]) == ("COMPLETED", "COMPLETED")


def test_a_job_that_waits_for_a_port_can_be_cancelled(model: Site) -> None:
    path = serving(model, free_port(), "sleep 600")
    first = model.submit(path)
    wait_until((folders(first)[0] / "logs" / "driver-1.log").exists)
    second = model.submit(path)
    (two,) = folders(second)
    wait_until(lambda: state(two)["reason"] is not None)
    assert model.gym("jobs", "cancel", second["gym_job_id"]).out == "Cancelled bench.\n"
    assert state(two)["name"] == "CANCELLED" and not (two / "logs" / "job-1.log").exists()
    assert model.gym("jobs", "cancel", first["gym_job_id"]).out == "Cancelled bench.\n"


def test_a_port_that_something_else_answers_at_fails_the_job_before_anything_is_measured(model: Site) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (folder,) = folders(model.submit(serving(model, port, f"touch {model.folder}/began")))
        ended = wait_for_end(folder)
    assert ended["name"] == "FAILED" and f"Port {port} of localhost" in ended["reason"]
    assert not (model.folder / "began").exists() and not (folder / "logs" / "policy-1.log").exists()


def test_a_running_job_shows_its_time_and_why_it_was_begun_again(site: Site) -> None:
    marker = site.folder / "second"
    site.program("vllm", f"[ -e {marker} ] || {{ touch {marker}; exit 7; }}; exec sleep 600")
    data = yaml.safe_load(serving(site, free_port(), "").read_text())
    data["driver"]["benchmarks"] = {"one": {"run": {"limit": 1}, "resumable": {"max_retries": 1}}}
    record = site.submit(write(site.folder, data))
    (folder,) = folders(record)
    wait_until(lambda: state(folder)["attempt"] == 2)
    wait_until(lambda: site.status()[0]["seconds"] > state(folder)["seconds"] + 1)
    assert site.status()[0]["reason"] == "Attempt 1: The service policy ended with exit code 7."
    logs = site.gym("jobs", "logs")
    assert (logs.code, logs.out) == (0, "")
    assert logs.err == ("The driver of one hasn't begun; this is the log of its job.\nNothing is in job-2.log yet.\n")
    site.gym("jobs", "cancel", record["gym_job_id"])
