"""How jobs go on after each other: each case really runs the chain, with a driver that only ends as it is told."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.orchestration.configs import content, write
from tests.unit.orchestration.conftest import ENDED, GYM, ROOT, Site, wait_until


@pytest.fixture
def chain(cluster: Site) -> Site:
    """A cluster whose `gym eval run` takes its exit codes, one after the other, from a file; the last one stays."""
    cluster.program(
        "gym",
        f"""if [ "$1 $2" = "eval run" ]; then
  codes={cluster.folder}/codes; code=$(head -n 1 "$codes")
  [ "$(wc -l < "$codes")" -le 1 ] || sed -i 1d "$codes"
  echo "$*" >> {cluster.folder}/driven
  [ "$code" = wait ] && exec sleep 600
  exit "$code"
fi
{GYM}""",
    )
    return cluster


def submitted(site: Site, *codes: object, resumable: Any = True, **environment: str) -> Path:
    (site.folder / "codes").write_text("".join(f"{code}\n" for code in codes))
    data = content(services={}, benchmark={"resumable": resumable}, job={"output_path": str(site.folder / "runs")})
    record = site.submit(write(site.folder, data), **environment)
    return Path(record["benchmarks"][0]["job_dir"])


def all_ended(site: Site, count: int) -> bool:
    return all(site.job_state(str(number)) in ENDED for number in range(1, count + 1))


def states(site: Site) -> list[str]:
    jobs = sorted(int(path.name) for path in (site.folder / "slurm").iterdir() if path.name.isdigit())
    return [site.job_state(str(job)) for job in jobs]


def newest(site: Site) -> str:
    name: str = json.loads(site.gym("jobs", "list", "--json").out)[0]["gym_job_id"]
    return name


def status_with(site: Site, **environment: str) -> dict[str, Any]:
    ended = site.gym("jobs", "status", "--json", **environment)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)["benchmarks"][0]
    return found


def chained(folder: Path) -> list[str]:
    return (folder / ".gym_job_chain").read_text().split()


def test_a_benchmark_that_is_not_resumable_is_one_job(chain: Site) -> None:
    folder = submitted(chain, 3, resumable=False)
    wait_until(lambda: all_ended(chain, 1))
    assert states(chain) == ["FAILED"]
    assert not (folder / ".gym_job_chain").exists()
    assert "resume_from_cache" not in (chain.folder / "driven").read_text()
    assert chain.status()[0]["reason"] == "The driver ended with exit code 3."


def test_a_completed_job_is_not_followed(chain: Site) -> None:
    folder = submitted(chain, 0)
    wait_until(lambda: all_ended(chain, 2))
    assert states(chain) == ["COMPLETED", "CANCELLED"]
    assert chained(folder) == ["1"]
    assert "+resume_from_cache=true" in (chain.folder / "driven").read_text()


def test_failures_are_retried_so_often_and_no_more(chain: Site) -> None:
    folder = submitted(chain, 1, resumable={"max_retries": 2})
    wait_until(lambda: all_ended(chain, 4))
    assert states(chain) == ["FAILED"] * 4
    assert chained(folder) == ["1", "2", "3"]
    assert (folder / ".gym_infra_retries").read_text() == "3\n"
    assert (folder / ".gym_reason").read_text() == "Gave up after 2 retries: job 3 ended as FAILED.\n"
    found = chain.status()[0]
    assert (found["state"], found["job_id"], found["attempt"]) == ("FAILED", "3", 3)
    assert found["reason"].startswith("Gave up after 2 retries")


def test_a_run_that_stopped_resumably_is_no_failure(chain: Site) -> None:
    folder = submitted(chain, 75, 75, 0, resumable={"max_retries": 0})
    wait_until(lambda: all_ended(chain, 4))
    assert states(chain) == ["FAILED", "FAILED", "COMPLETED", "CANCELLED"]
    assert not (folder / ".gym_infra_retries").exists()


@pytest.mark.parametrize("state", ["TIMEOUT", "PREEMPTED", "NODE_FAIL"])
def test_what_the_cluster_did_is_no_failure(chain: Site, state: str) -> None:
    folder = submitted(chain, "wait", 0, resumable={"max_retries": 0}, FAKE_SLURM_ELAPSED="100")
    wait_until(lambda: (chain.folder / "driven").exists())
    chain.end("1", state)
    wait_until(lambda: all_ended(chain, 3))
    assert states(chain) == [state, "COMPLETED", "CANCELLED"]
    assert (folder / ".gym_accumulated_walltime").read_text() == "100\n"


def test_a_cancelled_job_is_not_followed(chain: Site) -> None:
    folder = submitted(chain, "wait")
    wait_until(lambda: (chain.folder / "driven").exists())
    chain.end("1", "CANCELLED")
    wait_until(lambda: all_ended(chain, 2))
    assert states(chain) == ["CANCELLED", "COMPLETED"], "the second only saw that there is nothing to do"
    assert chained(folder) == ["1"]
    assert chain.status()[0]["state"] == "CANCELLED"


def test_time_is_added_up_until_there_is_no_more(chain: Site) -> None:
    folder = submitted(chain, 75, resumable={"max_walltime": "01:00:00"}, FAKE_SLURM_ELAPSED="1500")
    wait_until(lambda: all_ended(chain, 4))
    assert (folder / ".gym_accumulated_walltime").read_text() == "4500\n"
    assert chained(folder) == ["1", "2", "3"]
    assert (folder / ".gym_reason").read_text() == "Gave up after 4500 s: max_walltime is 3600 s.\n"


NO_ACCOUNTS = {"FAKE_SLURM_NO_ACCOUNTS": "1"}
FORGETFUL = {**NO_ACCOUNTS, "FAKE_SLURM_FORGETS": "1"}


@pytest.mark.parametrize("knows", [NO_ACCOUNTS, FORGETFUL], ids=["the controller knows", "only the job's note"])
def test_without_accounts_failures_are_retried_so_often_and_no_more(chain: Site, knows: dict[str, str]) -> None:
    """A cluster without slurmdbd: the chain was endless, since nobody could say how the job before had ended."""
    folder = submitted(chain, 1, resumable={"max_retries": 2}, **knows)
    wait_until(lambda: all_ended(chain, 4))
    assert states(chain) == ["FAILED"] * 4
    assert (folder / ".gym_reason").read_text() == "Gave up after 2 retries: job 3 ended as FAILED.\n"
    found = status_with(chain, **knows)
    assert (found["state"], found["job_id"], found["attempt"]) == ("FAILED", "3", 3)


@pytest.mark.parametrize("knows", [NO_ACCOUNTS, FORGETFUL], ids=["the controller knows", "only the job's note"])
def test_without_accounts_a_run_that_stopped_resumably_is_no_failure(chain: Site, knows: dict[str, str]) -> None:
    submitted(chain, 75, 0, resumable={"max_retries": 0}, **knows)
    wait_until(lambda: all_ended(chain, 3))
    assert states(chain) == ["FAILED", "COMPLETED", "CANCELLED"]
    assert status_with(chain, **knows)["state"] == "COMPLETED"


def test_without_accounts_the_controller_tells_a_walltime_from_a_failure(chain: Site) -> None:
    submitted(chain, "wait", 0, resumable={"max_retries": 0}, **NO_ACCOUNTS)
    wait_until(lambda: (chain.folder / "driven").exists())
    chain.end("1", "TIMEOUT")
    wait_until(lambda: all_ended(chain, 3))
    assert states(chain) == ["TIMEOUT", "COMPLETED", "CANCELLED"]


def test_without_accounts_time_is_added_up_by_the_jobs_own_notes(chain: Site) -> None:
    folder = submitted(chain, 75, resumable={"max_walltime": "01:00:00"}, SECONDS="1500", **FORGETFUL)
    wait_until(lambda: all_ended(chain, 4))
    assert int((folder / ".gym_accumulated_walltime").read_text()) >= 4500
    assert chained(folder) == ["1", "2", "3"]


def test_a_job_whose_end_nobody_knows_counts_as_a_failure(chain: Site) -> None:
    """Its node is gone, and no account of it is left: without a count the chain would have no end."""
    folder = submitted(chain, "wait", resumable={"max_retries": 1}, **FORGETFUL)
    for number in ("1", "2"):
        wait_until((folder / "logs" / f"driver-{number}.log").exists)
        chain.end(number, "NODE_FAIL")
    wait_until(lambda: all_ended(chain, 3))
    assert states(chain) == ["NODE_FAIL", "NODE_FAIL", "FAILED"]
    assert (folder / ".gym_reason").read_text() == "Gave up after 1 retries: job 2 ended as nobody knows.\n"


def test_a_cancelled_chain_ends_even_where_no_account_says_so(chain: Site) -> None:
    submitted(chain, "wait", **FORGETFUL)
    wait_until(lambda: (chain.folder / "driven").exists())
    ended = chain.gym("jobs", "cancel", newest(chain), **FORGETFUL)
    assert (ended.code, ended.out) == (0, "Cancelled mcqa.\n"), ended.err
    wait_until(lambda: all_ended(chain, 2))
    assert "COMPLETED" not in states(chain)[:1] and len(states(chain)) == 2
    again = subprocess.run(
        ["bash", str(next((chain.folder / "runs").glob("*/mcqa/job.sh")))],
        env={**chain.environment, **FORGETFUL, "SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode == 0 and len(states(chain)) == 2, "a job that was queued in the meantime does nothing"
    assert (chain.folder / "driven").read_text().count("\n") == 1


def test_a_controller_that_does_not_answer_is_told_not_taken_for_an_empty_queue(chain: Site) -> None:
    submitted(chain, "wait", **NO_ACCOUNTS)
    wait_until(lambda: (chain.folder / "driven").exists())
    silent = {**NO_ACCOUNTS, "FAKE_SLURM_SILENT": "1"}
    for words in (["status"], ["cancel", newest(chain)]):
        ended = chain.gym("jobs", *words, **silent)
        assert ended.code == 1 and "Unable to contact slurm controller" in ended.error
    known = chain.gym("jobs", "cancel", newest(chain), FAKE_SLURM_SILENT="1")
    assert known.out == "Cancelled mcqa.\n", "the account says that it runs"


def test_what_was_given_up_is_gone_on_with_by_hand_as_the_page_says(chain: Site) -> None:
    folder = submitted(chain, 1, 1, 0, resumable={"max_retries": 1})
    wait_until(lambda: all_ended(chain, 3))
    assert chain.status()[0]["reason"].startswith("Gave up after 1 retries")
    page = (ROOT / "docs" / "submit.md").read_text()
    commands = page[page.index("rm -f .gym_job_chain") :].partition("```")[0]
    subprocess.run(["bash", "-ec", commands], cwd=folder, env=chain.environment, check=True, capture_output=True)
    wait_until(lambda: all_ended(chain, 5))
    found = chain.status()[0]
    assert (found["state"], found["job_id"], found["attempt"]) == ("COMPLETED", "4", 1)


def test_a_requeued_job_queues_no_second_successor(chain: Site) -> None:
    folder = submitted(chain, 0)
    wait_until(lambda: all_ended(chain, 2))
    environment = {**chain.environment, "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "127.0.0.1"}
    again = subprocess.run(["bash", str(folder / "job.sh")], env=environment, capture_output=True, text=True)
    assert again.returncode == 0 and "job 1 was requeued" in again.stderr
    assert len(states(chain)) == 2 and chained(folder) == ["1"]


def test_benchmarks_do_not_disturb_each_other(chain: Site) -> None:
    (chain.folder / "codes").write_text("0\n")
    data = content(services={}, job={"output_path": str(chain.folder / "runs")})
    data["driver"]["benchmarks"] = {"one": {"run": {"limit": 1}}, "two": {"run": {}}, "three": {"command": "true"}}
    path = write(chain.folder, data)
    ended = chain.gym("eval", "submit", "-c", str(path), FAKE_SLURM_REFUSES="two")
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[1] == "one: submitted → Slurm job 1" and lines[3] == "three: submitted → Slurm job 2"
    assert lines[2] == "two: failed: sbatch: error: Invalid account sbatch: error: two is refused"
    assert ended.error == "Error: not submitted: two."
    wait_until(lambda: all_ended(chain, 2))
    found = {one["benchmark"]: (one["state"], one["job_id"]) for one in chain.status()}
    assert found == {"one": ("COMPLETED", "1"), "two": ("REFUSED", None), "three": ("COMPLETED", "2")}
    record = json.loads((next((chain.folder / "runs").iterdir()) / "gym-job.json").read_text())
    assert [one["error"] is None for one in record["benchmarks"]] == [True, False, True]
    table = chain.gym("jobs", "list").out
    assert record["gym_job_id"] in table and "two (failed)" in table


def test_over_ssh_the_other_machine_does_it_all(chain: Site) -> None:
    (chain.folder / "codes").write_text("0\n")
    calls = chain.folder / "ssh-calls"
    chain.program(
        "ssh", f'echo "$*" >> {calls}\nwhile [ "$1" = -o ]; do shift 2; done\n[ "$1" = -O ] && exit\nshift\nexec $1'
    )
    chain.program("rsync", 'source="${@: -2:1}"; target="${@: -1}"; cp -a "$source." "${target#*:}"')
    data = content(services={}, job={"output_path": str(chain.folder / "runs")})
    data["compute"]["cluster"]["hostname"] = "login1"
    record = chain.submit(write(chain.folder, data))
    assert record["hostname"] == "login1" and record["benchmarks"][0]["job_id"] == "1"
    wait_until(lambda: all_ended(chain, 1))
    folder = Path(record["benchmarks"][0]["job_dir"])
    assert (folder / "job.sh").stat().st_mode & 0o777 == 0o600
    assert chain.status()[0]["state"] == "COMPLETED"
    said = calls.read_text().splitlines()
    assert all("BatchMode=yes" in line and "StrictHostKeyChecking=accept-new" in line for line in said)
    assert all(line.endswith(("login1 bash -s", "-O exit login1")) for line in said), "no script is an argument"


def test_a_host_that_is_not_reached_is_one_sentence(chain: Site) -> None:
    chain.program("ssh", 'echo "ssh: connect to host login1 port 22: Connection refused" >&2; exit 255')
    data = content(services={})
    data["compute"]["cluster"]["hostname"] = "login1"
    ended = chain.gym("eval", "submit", "-c", str(write(chain.folder, data)))
    assert ended.code == 1
    assert ended.error == (
        "Error: login1 can't be reached: ssh: connect to host login1 port 22: Connection refused; "
        "check `ssh -o BatchMode=yes login1 true`."
    )


def test_what_is_missing_there_is_told_before_anything_is_submitted(chain: Site) -> None:
    data = content(services={}, driver={"mounts": ["/nowhere/at/all:/data"]})
    data["job"] = {"output_path": str(chain.folder / "runs")}
    ended = chain.gym("eval", "submit", "-c", str(write(chain.folder, data)))
    assert ended.code == 1 and "There is no /nowhere/at/all where the jobs run" in ended.error
    assert states(chain) == [] and not (chain.folder / "runs").exists()
    data["driver"]["mounts"] = []
    (chain.bin / "sbatch").unlink()
    ended = chain.gym("eval", "submit", "-c", str(write(chain.folder, data)), PATH=f"{chain.bin}:/usr/bin:/bin")
    assert ended.code == 1 and "There is no program sbatch there" in ended.error


def test_an_output_folder_that_can_not_be_made_is_one_sentence(chain: Site) -> None:
    (chain.folder / "file").touch()
    data = content(services={}, job={"output_path": str(chain.folder / "file" / "runs")})
    ended = chain.gym("eval", "submit", "-c", str(write(chain.folder, data)))
    assert ended.code == 1 and "/runs/gym-job-" in ended.error and "can't be made" in ended.error
