"""`gym eval submit` on the command line: what it prints without submitting, and how it ends."""

import json
import subprocess
from pathlib import Path

import yaml

from nemo_gym.orchestration.loading import validated
from tests.unit.orchestration.configs import VLLM, content, write
from tests.unit.orchestration.conftest import ENDED, Site, wait_until


def test_the_checked_config_is_printed_and_reads_back(site: Site) -> None:
    service = {
        **VLLM,
        "env": {"HF_TOKEN": "host:HF_TOKEN", "API_KEY": "lit:sk-not-shown", "MY_KEY": "lit:abc"},
        "extra_args": "--seed 1 --api-key sk-in-flags --other-key=$KEY",
        "pre_command": "export MY_TOKEN=sk-exported; true",
    }
    data = content(services={"policy": service}, benchmark={"run": {"judge_api_key": "sk-hidden-too"}})
    data["driver"]["benchmarks"]["mcqa"]["run"]["note"] = "the key is sk-hidden-too"
    path = str(write(site.folder, data))
    shown = site.gym("eval", "submit", "-c", path, "--resolve-only", "driver.benchmarks.mcqa.run.note=x", "-v")
    assert shown.code == 0, shown.err
    found = yaml.safe_load(shown.out)
    validated(found, "shown")
    assert found["services"]["policy"]["env"] == {
        "HF_TOKEN": "host:HF_TOKEN",
        "API_KEY": "lit:****",
        "MY_KEY": "lit:****",
    }
    assert found["services"]["policy"]["extra_args"] == "--seed 1 --api-key **** --other-key=$KEY"
    assert found["services"]["policy"]["pre_command"] == "export MY_TOKEN=****; true"
    assert found["driver"]["benchmarks"]["mcqa"]["run"] == {"judge_api_key": "****", "note": "x"}
    as_json = site.gym("--json", "eval", "submit", "-c", path, "--resolve-only", "driver.benchmarks.mcqa.run.note=x")
    assert json.loads(as_json.out) == found
    unchanged = site.gym("eval", "submit", "-c", path, "--resolve-only").out
    assert "sk-hidden-too" not in unchanged and "the key is ****" in unchanged
    assert not (site.folder / "cache" / "nemo-gym").exists() and not (site.folder / "outputs").exists()


def test_a_dry_run_prints_every_script_and_writes_nothing(site: Site) -> None:
    service = {**VLLM, "env": {"HF_TOKEN": "host:HF_TOKEN"}}
    data = content(services={"policy": service}, job={"output_path": str(site.folder / "runs")})
    data["driver"]["benchmarks"]["two"] = {"command": "true"}
    path = str(write(site.folder, data))
    refused = site.gym("eval", "submit", "-c", path, "--dry-run")
    assert refused.code == 1 and "HF_TOKEN is not set here" in refused.error
    shown = site.gym("eval", "submit", "-c", path, "--dry-run", HF_TOKEN="hf_not_shown")
    assert shown.code == 0 and "hf_not_shown" not in shown.out + shown.err
    assert shown.out.startswith(f"Run directory: {site.folder}/runs/gym-job-")
    assert "services.policy uses 1 of 8 GPUs: 7 stay idle." in shown.err
    for part in ("=== mcqa/job.sh\n#!/bin/bash\n", "=== two/job.sh", "=== mcqa/env/policy.env (values of variables"):
        assert part in shown.out
    files = json.loads(site.gym("eval", "submit", "-c", path, "--dry-run", "--json", HF_TOKEN="hf_x").out)["files"]
    assert files["mcqa/env/policy.env"] is None and files["mcqa/job.sh"].startswith("#!/bin/bash")
    assert not (site.folder / "runs").exists()


def test_a_wrong_line_is_one_sentence(site: Site) -> None:
    path = str(write(site.folder, content()))
    missing = site.gym("eval", "submit")
    assert missing.code == 2 and "missing --config FILE" in missing.error
    both = site.gym("eval", "submit", "-c", path, "--dry-run", "--resolve-only")
    assert both.code == 2 and "exclude each other" in both.error
    wrong = site.gym("eval", "submit", "-c", path, "+services.policy.port=x")
    assert wrong.code == 1
    assert wrong.error == (
        f"Error: {path}: wrong services.policy.port (input should be a valid integer, unable to parse string as an "
        "integer)."
    )


def test_jobs_take_no_overrides(site: Site) -> None:
    for words in (("list",), ("status",), ("cancel", "x"), ("logs",)):
        ended = site.gym("jobs", *words, "+a=1")
        assert ended.code == 2 and "takes no override, and +a= is one" in ended.error


def test_a_relative_output_path_is_one_of_here(site: Site) -> None:
    data = content(services={}, job={"output_path": "runs"})
    path = str(write(site.folder, data))
    files = json.loads(site.gym("eval", "submit", "-c", path, "--dry-run", "--json").out)
    assert files["run_dir"].startswith(f"{site.folder}/runs/gym-job-")
    far = site.gym("eval", "submit", "-c", path, "--dry-run", "compute.cluster.hostname=h")
    assert far.code == 1 and "write +key=value to add it" in far.error
    far = site.gym("eval", "submit", "-c", path, "--dry-run", "+compute.cluster.hostname=h")
    assert far.code == 1 and "job.output_path runs must be absolute" in far.error


def test_a_collector_is_ended_after_the_driver(site: Site) -> None:
    log = site.folder / "collected"
    site.program(
        "otelcol-contrib",
        f"""echo "started $GYM_OTEL_TOKEN $2" > {log}
python3 -m http.server 13133 --bind 127.0.0.1 >/dev/null 2>&1 & server=$!
trap 'echo ended >> {log}; kill $server; exit' TERM
wait""",
    )
    data = content(
        services={},
        compute={"type": "local"},
        benchmark={"command": f'echo "driver $NEMO_GYM_OTEL_ENABLED" >> {log}'},
        otel={"endpoint": "http://nowhere", "service_name": "s"},
        job={"output_path": str(site.folder / "runs")},
    )
    record = site.submit(write(site.folder, data), OTEL_TOKEN="tok-1")
    folder = Path(record["benchmarks"][0]["job_dir"])
    wait_until(lambda: json.loads((folder / "state.json").read_text())["name"] in ENDED)
    assert json.loads((folder / "state.json").read_text())["name"] == "COMPLETED"
    assert json.loads((folder.parent / "gym-job.json").read_text())["gym_job_id"] == record["gym_job_id"]
    assert log.read_text().splitlines() == [f"started tok-1 {folder}/otel/collector.yaml", "driver true", "ended"]
    assert "tok-1" not in (folder / "otel" / "collector.yaml").read_text()


def test_gym_is_installed_from_a_repository_at_a_ref(cluster: Site) -> None:
    """A stand-in for uv, a real repository: the driver's `gym` is the one of the checkout."""
    repository = cluster.folder / "repository"
    repository.mkdir()

    def git(*words: str) -> None:
        settings = ("-c", "user.name=n", "-c", "user.email=e@e")
        subprocess.run(["git", "-C", str(repository), *settings, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (repository / "version").write_text("wanted")
    git("add", "version")
    git("commit", "-qm", "m")
    git("tag", "v1")
    (repository / "version").write_text("newer")
    git("commit", "-qam", "n")
    cluster.program(
        "uv",
        """if [ "$1" = venv ]; then mkdir -p "${@: -1}/bin"; exit; fi
[ "$*" = "pip install --quiet -e ." ] || exit 9
gym="$VIRTUAL_ENV/bin/gym"
printf '#!/bin/bash\\necho "$(cat %s/version): $*"; exit 75\\n' "$PWD" > "$gym"; chmod +x "$gym"
""",
    )
    data = content(
        services={},
        driver={"gym_install": {"repo": str(repository), "ref": "v1"}},
        job={"output_path": str(cluster.folder / "runs")},
    )
    temporary = cluster.folder / "temporary"
    temporary.mkdir()
    record = cluster.submit(write(cluster.folder, data), TMPDIR=str(temporary))
    folder = Path(record["benchmarks"][0]["job_dir"])
    wait_until(lambda: cluster.job_state("1") in ENDED)
    assert cluster.status()[0]["reason"] == "The driver ended with exit code 75."
    assert list(temporary.iterdir()) == [], "the checkout is deleted"
    assert (folder / "logs" / "driver-1.log").read_text().startswith("wanted: eval run +output_jsonl_fpath=")
