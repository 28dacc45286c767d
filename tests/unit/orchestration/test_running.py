"""A submission on a cluster whose programs are stand-ins that really run the scripts."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import question
from tests.ports import free_port
from tests.unit.orchestration.configs import SLURM, VLLM, content, write
from tests.unit.orchestration.conftest import ENDED, ROOT, Site, wait_until

SECRET = "hf_not-to-be-seen-anywhere"
SERVE = f"""
while [ "$1" != --port ]; do shift; done
echo "serving with ${{HF_TOKEN:-no token}}" >&2
cd {ROOT} && exec "{sys.executable}" -m tests.mock_provider --port "$2" --script "$FAKE_MODEL"
"""


@pytest.fixture
def model(cluster: Site) -> Site:
    """The cluster with a `vllm` that is the mock provider."""
    cluster.program("vllm", SERVE)
    (cluster.folder / "model.json").write_text(json.dumps({"default": "\\boxed{A}"}))
    return cluster


def rows(site: Site, count: int = 3) -> Path:
    path = site.folder / "rows.jsonl"
    path.write_text("".join(json.dumps(question(number)) + "\n" for number in range(count)))
    return path


def submit_config(site: Site, *, benchmark: dict[str, Any] | None = None, **parts: Any) -> Path:
    run = {
        "config_paths": ["resources_servers/mcqa/configs/mcqa.yaml"],
        "input_jsonl_fpath": str(rows(site)),
        "num_samples_in_parallel": 1,
        "head_server": {"port": free_port()},
    }
    service = {
        **VLLM,
        "port": free_port(),
        "health_check": {"path": "/v1/models"},
        "env": {"HF_TOKEN": "host:HF_TOKEN", "FAKE_MODEL": f"lit:{site.folder}/model.json"},
    }
    bench = {"run": {**run, **(benchmark or {}).pop("run", {})}, **(benchmark or {})}
    data = content(
        services={"policy": service},
        driver={"policy_model": "policy", "benchmarks": {"mcqa": bench}},
        job={"output_path": str(site.folder / "runs")},
        **parts,
    )
    return write(site.folder, data)


def records_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "artifacts" / "rollouts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told(folder: Path) -> str:
    return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted((folder / "logs").glob("*.log")))


def test_a_model_and_a_benchmark_run_and_are_followed(model: Site) -> None:
    record = model.submit(submit_config(model), HF_TOKEN=SECRET)
    folder = Path(record["benchmarks"][0]["job_dir"])
    assert record["benchmarks"][0]["job_id"] == "1" and record["executor"] == "slurm"
    assert folder == Path(record["run_dir"], "mcqa")
    wait_until(lambda: model.job_state("1") in ENDED)
    assert model.job_state("1") == "COMPLETED", told(folder)
    assert [one["reward"] for one in records_of(folder)] == [1.0, 1.0, 1.0]
    assert f"serving with {SECRET}" in (folder / "logs" / "policy-1.log").read_text()
    assert list((folder / "model-calls").rglob("*")), "the model's calls are captured by default"
    assert model.status() == [
        {
            "benchmark": "mcqa",
            "state": "COMPLETED",
            "job_id": "1",
            "attempt": 1,
            "seconds": model.status()[0]["seconds"],
            "measured": 3,
            "reason": None,
        }
    ]
    assert "the driver ended with exit code 0" in model.gym("jobs", "logs", "--step", "job").out
    assert "3 measured" in model.gym("jobs", "logs").out
    assert "none of those" not in model.gym("jobs", "logs", "--step", "polcy").error
    assert "Did you mean `policy`?" in model.gym("jobs", "logs", "--step", "polcy").error
    steps = {call["options"]["output"].rpartition("/")[2]: call["options"] for call in model.srun_calls()}
    assert steps["policy-1.log"]["container-image"] == "vllm:1"
    assert steps["driver-1.log"]["container-mounts"] == f"{folder}:{folder}"
    assert all("overlap" in options and options["ntasks"] == "1" for options in steps.values())


def test_no_secret_is_in_a_file_that_others_can_read(model: Site) -> None:
    path = submit_config(model, benchmark={"run": {"judge_api_key": "sk-very-secret-key"}})
    data = yaml.safe_load(path.read_text())
    data["services"]["policy"]["env"]["OTHER_TOKEN"] = "lit:another-secret-of-mine"
    write(model.folder, data)
    record = model.submit(path, HF_TOKEN=SECRET)
    run_dir = Path(record["run_dir"])
    wait_until(lambda: model.job_state("1") in ENDED)
    secrets = (SECRET, "sk-very-secret-key", "another-secret-of-mine")
    kept = {"mcqa/env/policy.env", "mcqa/env/driver.env"}
    for file in (path for path in run_dir.rglob("*") if path.is_file()):
        name = str(file.relative_to(run_dir))
        found = [secret for secret in secrets if secret in file.read_text(errors="replace")]
        if name in kept:
            assert found, name
        elif name != "mcqa/logs/policy-1.log":  # the stand-in prints what it was given
            assert not found, name
    for name in ("resolved-config.yaml", "mcqa/job.sh", *kept):
        assert (run_dir / name).stat().st_mode & 0o777 == 0o600, name
    assert (run_dir / "mcqa" / "env").stat().st_mode & 0o777 == 0o700
    index = model.folder / "cache" / "nemo-gym" / "jobs" / f"{record['gym_job_id']}.json"
    assert index.stat().st_mode & 0o777 == 0o600
    assert json.loads(index.read_text()) == record == json.loads((run_dir / "gym-job.json").read_text())
    shown = yaml.safe_load((run_dir / "resolved-config.yaml").read_text())
    assert shown["services"]["policy"]["env"]["HF_TOKEN"] == "host:HF_TOKEN"
    assert shown["services"]["policy"]["env"]["OTHER_TOKEN"] == "lit:****"


def test_a_service_that_dies_ends_the_job_at_once(model: Site) -> None:
    model.program("vllm", 'echo "CUDA out of memory" >&2; exit 7')
    path = submit_config(model)
    record = model.submit(path, "+services.policy.health_check.timeout_seconds=600", HF_TOKEN=SECRET)
    folder = Path(record["benchmarks"][0]["job_dir"])
    wait_until(lambda: model.job_state("1") in ENDED)
    assert model.job_state("1") == "FAILED"
    log = (folder / "logs" / "job-1.log").read_text()
    assert "CUDA out of memory" in log and "The service policy ended with exit code 7." in log
    assert model.status()[0]["reason"] == "The service policy ended with exit code 7."
    assert not (folder / "logs" / "driver-1.log").exists()


def test_a_service_that_dies_later_ends_the_driver_too(model: Site) -> None:
    (model.folder / "model.json").write_text(json.dumps({"default": "\\boxed{A}", "latency": 600}))
    record = model.submit(submit_config(model), HF_TOKEN=SECRET)
    folder = Path(record["benchmarks"][0]["job_dir"])
    driver, journal = folder / "logs" / "driver-1.log", folder / "artifacts" / "rollouts.jsonl.journal"
    wait_until(lambda: journal.exists() and '"attempt"' in journal.read_text(), lambda: told(folder))
    pid = int((folder / ".gym_pids").read_text().split()[0])
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: model.job_state("1") in ENDED)
    assert model.job_state("1") == "FAILED"
    assert "The service policy ended with exit code" in (folder / "logs" / "job-1.log").read_text()
    assert "--resume" in driver.read_text(), "the driver was stopped in order"


def test_a_service_that_is_never_ready_is_named(model: Site) -> None:
    record = model.submit(
        submit_config(model),
        "services.policy.health_check.path=/nowhere",
        "+services.policy.health_check.timeout_seconds=2",
        HF_TOKEN=SECRET,
    )
    wait_until(lambda: model.job_state("1") in ENDED)
    assert "The service policy was not ready within 2 s" in model.status(record["gym_job_id"])[0]["reason"]


def test_a_job_goes_on_after_its_walltime_and_ends_complete(model: Site) -> None:
    """Field report B111: a walltime is no failure of the model."""
    slow = {
        "default": "\\boxed{A}",
        "when": [{"contains": "Question 2", "reply": {"text": "\\boxed{A}", "latency": 600}}],
    }
    (model.folder / "model.json").write_text(json.dumps(slow))
    path = submit_config(model, benchmark={"resumable": True})
    record = model.submit(path, HF_TOKEN=SECRET)
    folder = Path(record["benchmarks"][0]["job_dir"])
    wait_until(lambda: len(records_of(folder)) == 2, lambda: told(folder))
    assert model.job_state("2") == "PENDING", "the next job is queued before this one works"
    (model.folder / "model.json").write_text(json.dumps({"default": "\\boxed{A}"}))
    model.end("1", "TIMEOUT")
    wait_until(lambda: model.job_state("2") in ENDED and model.job_state("3") in ENDED, lambda: told(folder))
    assert model.job_state("2") == "COMPLETED", told(folder)
    assert model.job_state("3") == "CANCELLED", "nothing goes on after a completed job"
    assert (folder / ".gym_job_chain").read_text().split() == ["1", "2"]
    records = records_of(folder)
    assert sorted(one["_ng_task_index"] for one in records) == [0, 1, 2]
    assert all(one["reward"] == 1.0 for one in records), "nothing was counted as failed by the walltime"
    found = model.status()[0]
    assert (found["state"], found["job_id"], found["attempt"], found["measured"]) == ("COMPLETED", "2", 2, 3)


def test_cancelling_ends_the_job_and_the_one_that_would_go_on(model: Site) -> None:
    (model.folder / "model.json").write_text(json.dumps({"default": "\\boxed{A}", "latency": 600}))
    record = model.submit(submit_config(model, benchmark={"resumable": True}), HF_TOKEN=SECRET)
    folder = Path(record["benchmarks"][0]["job_dir"])
    wait_until(lambda: (folder / ".gym_successor").exists(), lambda: told(folder))
    assert model.gym("jobs", "cancel", record["gym_job_id"][-6:]).out == "Cancelled mcqa.\n"
    wait_until(lambda: model.job_state("1") in ENDED and model.job_state("2") in ENDED)
    assert (model.job_state("1"), model.job_state("2"), model.job_state("3")) == ("CANCELLED", "CANCELLED", "")
    assert model.status()[0]["state"] == "CANCELLED"
    assert "Nothing was running" in model.gym("jobs", "cancel", record["gym_job_id"]).out


def test_a_command_is_told_where_the_policy_is(model: Site) -> None:
    bench = {"command": 'env | grep ^NEMO_GYM_ | sort; test -n "$MINE"'}
    data = yaml.safe_load(submit_config(model).read_text())
    data["driver"]["benchmarks"] = {"own": bench}
    data["driver"]["env"] = {"MINE": "runtime:OF_THE_JOB"}
    record = model.submit(write(model.folder, data), HF_TOKEN=SECRET, OF_THE_JOB="yes")
    folder = Path(record["benchmarks"][0]["job_dir"])
    wait_until(lambda: model.job_state("1") in ENDED)
    assert model.job_state("1") == "COMPLETED", told(folder)
    assert (folder / "logs" / "driver-1.log").read_text().splitlines() == [
        f"NEMO_GYM_BENCH_DIR={folder}",
        "NEMO_GYM_POLICY_API_KEY=dummy",
        f"NEMO_GYM_POLICY_BASE_URL=http://localhost:{data['services']['policy']['port']}/v1",
        "NEMO_GYM_POLICY_MODEL_NAME=org/model",
    ]


def test_several_nodes_each_serve_their_part(model: Site) -> None:
    """Two nodes, four instances: the second node has no port, and begins at rank 2."""
    model.program(
        "vllm",
        f'echo "$SLURM_NODEID $*" >> {model.folder}/calls; [[ "$*" == *--headless* ]] && exec sleep 600\n{SERVE}',
    )
    data = yaml.safe_load(submit_config(model).read_text())
    data["compute"]["cluster"] = {**SLURM, "node_pools": {"gpu": {"nodes": 2, "gpus_per_node": 8, "partition": "b"}}}
    data["services"]["policy"] |= {"number_of_instances": 4, "extra_args": "--api-server-count 3 --seed 1"}
    model.submit(write(model.folder, data), HF_TOKEN=SECRET)
    wait_until(lambda: model.job_state("1") in ENDED)
    assert model.job_state("1") == "COMPLETED"
    first, second = sorted((model.folder / "calls").read_text().splitlines())
    assert (
        first.startswith("0 serve org/model --port ") and "--data-parallel-size 4 --data-parallel-size-local 2" in first
    )
    assert "--data-parallel-rpc-port 13345" in first and "--api-server-count 3" in first and "--headless" not in first
    assert second.startswith("1 ") and second.endswith("--headless --data-parallel-start-rank 2")
    assert "--api-server-count" not in second and "--seed 1" in second
    policy = next(call["options"] for call in model.srun_calls() if "policy" in call["options"].get("output", ""))
    assert (policy["nodelist"], policy["ntasks"]) == ("127.0.0.1,127.0.0.2", "2")
