"""The scripts as they are rendered. That bash can read each one is checked of all."""

import base64
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemo_gym.orchestration import ray_serve_gateway
from nemo_gym.orchestration.plan import JobPlan, RunPlan
from nemo_gym.orchestration.script.job import job_script
from tests.unit.orchestration.configs import SLURM, VLLM, config, pools

PD = {"type": "vllm_pd", "container": "vllm:1", "model": "org/model"}
RUN_ID = "gym-job-20261130T000000Z-abcdef"
FOLDER = f"/runs/{RUN_ID}/mcqa"


def plan(environment: dict[str, str] | None = None, **parts: Any) -> JobPlan:
    return RunPlan.of(config(**parts), RUN_ID, environment or {}, user="me").jobs[0]


def script(environment: dict[str, str] | None = None, **parts: Any) -> str:
    text = job_script(plan(environment, **parts))
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    return text


def command(text: str, step: str) -> str:
    """What the shell of a step is told."""
    start = text.index(f"gym_start_{step}() {{")
    body = text[start : text.index(f"gym_start_{step} &")]
    words = shlex.split(body.replace("\\\n", " "), comments=False)
    return words[words.index("-c") + 1]


def flags(text: str, step: str) -> str:
    start = text.index(f"gym_start_{step}() {{")
    body = text[start : text.index(f"gym_start_{step} &")]
    return " ".join(body[: body.index("bash -c")].replace("\\\n", " ").split())


def driver_words(text: str) -> list[str]:
    """The words of the driver's last command."""
    return shlex.split(command(text, "driver").splitlines()[-1])


def test_directives_ask_for_all_pools_in_one() -> None:
    compute = {
        "type": "slurm",
        "account": "me",
        "walltime": "1-00",
        "extra_args": ["--exclusive", "--mail-user=a b"],
        "node_pools": {
            "a": {"partition": "p", "nodes": 2, "gpus_per_node": 4, "extra_args": "--mem=0 --exclusive"},
            "b": {"partition": "p", "nodes": 1, "gpus_per_node": 4},
        },
    }
    lines = [line for line in script(services={}, compute=compute).splitlines() if line.startswith("#")]
    assert lines[:12] == [
        "#!/bin/bash",
        "#SBATCH --job-name=gym-mcqa",
        "#SBATCH --account=me",
        "#SBATCH --time=1-00",
        f"#SBATCH --chdir={FOLDER}",
        f"#SBATCH --output={FOLDER}/logs/job-%j.log",
        "#SBATCH --partition=p",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --exclusive",
        "#SBATCH '--mail-user=a b'",
    ]
    assert lines[12] == "#SBATCH --mem=0"


def test_a_plain_server_has_the_flags_of_its_service() -> None:
    service = {
        **VLLM,
        "port": 9000,
        "served_model_name": "name",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "number_of_instances": 2,
        "trust_remote_code": True,
        "extra_args": "--seed 1 --x '{\"a\": 1}'",
    }
    text = script(services={"policy": service})
    assert command(text, "policy") == (
        "exec vllm serve org/model --port 9000 --tensor-parallel-size 2 --served-model-name name "
        "--pipeline-parallel-size 2 --seed 1 --x '{\"a\": 1}' --data-parallel-size 2 --trust-remote-code"
    )
    assert 'gym_ready policy 60 gym_probe_http "http://${gym_nodes[0]}:9000/health"' in text
    assert "--nodelist" not in flags(text, "policy")


def test_a_step_has_its_variables_mounts_and_command_before() -> None:
    env = {"A": "lit:it's $X", "B": "runtime:JOB_VAR", "C": "host:HERE", "API_KEY": "lit:sk-1"}
    service = {**VLLM, "env": env, "mounts": ["/a:/b", "/c:/d:ro"], "pre_command": "source setup.sh"}
    made = plan({"HERE": "sec'ret"}, services={"policy": service})
    text = job_script(made)
    assert "export A='it'\"'\"'s $X'" in text
    assert 'export B="${JOB_VAR?has no value in the job, and policy takes it from there}"' in text
    assert "sec'ret" not in text and "sk-1" not in text
    assert made.private_files() == {"env/policy.env": "C='sec'\"'\"'ret'\nAPI_KEY=sk-1\n"}
    assert "--no-container-mount-home --container-mounts=/a:/b,/c:/d:ro --container-image=vllm:1" in flags(
        text, "policy"
    )
    assert command(text, "policy").splitlines()[0] == "source setup.sh"


def test_the_driver_prepares_and_runs() -> None:
    benchmark = {
        "prepare": {"config_paths": ["benchmarks/a/config.yaml"]},
        "run": {
            "limit": 4,
            "num_repeats": {"_default": 2},
            "names": ["a", "b c"],
            "empty": {},
            "nothing": None,
            "word": "null",
            "flag": False,
            "quote": 'it\'s "so"',
            "observability_enabled": False,
        },
        "resumable": True,
    }
    text = script(driver={"policy_model": "policy", "benchmarks": {"mcqa": benchmark}})
    lines = command(text, "driver").splitlines()
    assert lines[:2] == ["set -euo pipefail", "gym eval prepare '+config_paths=[benchmarks/a/config.yaml]'"]
    assert driver_words(text) == [
        "exec",
        "gym",
        "eval",
        "run",
        f"+output_jsonl_fpath={FOLDER}/artifacts/rollouts.jsonl",
        "--model-type",
        "openai_model",
        "+policy_base_url=http://localhost:8000/v1",
        "+policy_model_name=org/model",
        "+policy_api_key=dummy",
        "+observability_enabled=false",
        f"+model_call_capture_dir={FOLDER}/model-calls",
        "+require_complete=true",
        "+resume_from_cache=true",
        "+limit=4",
        "+num_repeats._default=2",
        '+names=[a,"b c"]',
        "+empty={}",
        "+nothing=null",
        '+word="null"',
        "+flag=false",
        '+quote="it\'s \\"so\\""',
    ]


def test_what_the_driver_is_told_is_what_was_meant() -> None:
    """The overrides of a run are read back by the grammar they are written for."""
    from nemo_gym.config.overrides import parse_overrides

    run = {"a": "1e5", "b": "x=y,z", "c": ["true", True, {"d": "{}"}], "e": {"f": 'q"\\'}, "g": "${h}", "h": 1.5}
    words = driver_words(script(benchmark={"run": run}))
    parsed = parse_overrides(
        [word for word in words if word.startswith("+") and word[1] in "abcegh" and word[2] in "=."]
    )
    assert not parsed.problems
    assert parsed.config == {**run, "g": 1.5}


def test_secrets_of_a_run_are_read_from_variables() -> None:
    run = {"judge_api_key": "sk-1", "list": [{"api_key": "sk-2"}], "max_output_tokens": 5}
    made = plan(benchmark={"run": run})
    text = job_script(made)
    assert "sk-1" not in text and "sk-2" not in text
    assert made.private_files() == {"env/driver.env": "GYM_ARG_1=sk-1\nGYM_ARG_2=sk-2\n"}
    words = driver_words(text)
    assert words[-3:] == [
        "+judge_api_key=${oc.env:GYM_ARG_1}",
        "+list=[{api_key: ${oc.env:GYM_ARG_2}}]",
        "+max_output_tokens=5",
    ]


def everything_but_private_files(job: JobPlan) -> str:
    return job_script(job) + (job.collector_config or "")


@pytest.mark.parametrize(
    ("run", "secret"),
    [
        ({"judge_url": "http://me:hush-1@host/v1"}, "hush-1"),
        ({"urls": ["http://host/v1", "http://me:hush-1@host/v1"]}, "hush-1"),
        ({"judge": {"headers": {"X-Custom": "hush-1"}}}, "hush-1"),
        ({"policy": {"api_keys": ["hush-1", "hush-2"]}}, "hush-"),
        ({"command": ["--token=hush-1"]}, "hush-1"),
    ],
)
def test_what_the_kept_config_masks_is_in_no_script(run: dict[str, Any], secret: str) -> None:
    job = plan(services={}, benchmark={"run": run})
    assert secret not in everything_but_private_files(job)
    assert secret in job.private_files()["env/driver.env"]


def test_credentials_of_a_repository_are_in_no_script() -> None:
    install = {"repo": "https://me%40work:hush%3A1@git.example.com/gym.git", "ref": "v1"}
    job = plan(services={}, driver={"gym_install": install, "policy_model_type": ""})
    text = everything_but_private_files(job)
    assert "hush" not in text and "me%40work" not in text
    assert "clone --quiet https://git.example.com/gym.git" in text
    assert "GYM_REPO_USER=me@work\nGYM_REPO_PASSWORD=hush:1\n" in job.private_files()["env/driver.env"]
    told = command(job_script(job), "driver")
    helper = shlex.split(next(line for line in told.splitlines() if " clone " in line))[2].partition("=!")[2]
    variables = {"GYM_REPO_USER": "me@work", "GYM_REPO_PASSWORD": "hush:1"}
    said = subprocess.run(["sh", "-c", f"{helper} get"], env=variables, capture_output=True, text=True, check=True)
    assert said.stdout == "username=me@work\npassword=hush:1\n", "as git asks it"
    assert told.index("unset GYM_REPO_USER GYM_REPO_PASSWORD") < told.index("gym eval run")


def test_the_policy_is_asked_with_the_key_of_its_server() -> None:
    service = {**VLLM, "env": {"VLLM_API_KEY": "host:MY_KEY"}}
    policy = {"policy_model": "policy"}
    job = plan({"MY_KEY": "hush-1"}, services={"policy": service}, driver=policy)
    assert "+policy_api_key=${oc.env:NEMO_GYM_POLICY_API_KEY}" in driver_words(job_script(job))
    assert "NEMO_GYM_POLICY_API_KEY=hush-1" in job.private_files()["env/driver.env"]
    assert "hush" not in job_script(job)
    own = plan({"MY_KEY": "hush-1"}, services={"policy": service}, driver=policy, benchmark={"command": "true"})
    assert "NEMO_GYM_POLICY_API_KEY=hush-1" in own.private_files()["env/driver.env"]
    assert "NEMO_GYM_POLICY_API_KEY=dummy" not in job_script(own)


def test_a_port_is_asked_for_before_anything_is_started() -> None:
    text = script(services={"policy": {**VLLM, "port": 8010, "health_check": {"port": 8011}}})
    assert text.index("gym_free policy") < text.index("gym_start_policy &")
    assert re.findall(r'^gym_free policy "\$\{gym_nodes\[0\]\}" (\d+)$', text, re.MULTILINE) == ["8010", "8011"]


def test_gym_is_installed_where_asked() -> None:
    text = script(
        services={}, driver={"gym_install": {"repo": "https://g/x y.git", "ref": "v1"}, "policy_model_type": ""}
    )
    told = command(text, "driver")
    assert "git clone --quiet 'https://g/x y.git'" in told and "checkout --quiet v1" in told
    assert 'uv pip install --quiet -e "."' in told
    assert "curl" not in told, "no script from the network is run by a shell"
    assert driver_words(text)[:3] == ["gym", "eval", "run"], "the shell stays, to delete the checkout"
    assert "--model-type" not in told


def test_an_instance_larger_than_a_node_runs_over_ray() -> None:
    service = {**VLLM, "tensor_parallel_size": 16}
    text = script(services={"policy": service}, compute=pools(gpu=2))
    told = command(text, "policy")
    serve = "vllm serve org/model --port 8000 --tensor-parallel-size 16 --distributed-executor-backend ray"
    assert f'exec ray symmetric-run --address "$GYM_HEAD_POLICY:6379" --min-nodes 2 --num-gpus=8 -- {serve}' in told
    assert "export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600" in told
    assert told.endswith(f"exec {serve}")
    assert 'ray start --head --port 6379 --node-ip-address "$GYM_HEAD_POLICY" --num-gpus=8' in told
    assert 'export HEAD_NODE_IP="$GYM_HEAD_POLICY"' in text
    assert 'export RAY_HEAD_NODE_IP="$HEAD_NODE_IP:6379"' in text
    assert '--nodelist="$(gym_nodelist 0 2)" --nodes=2 --ntasks=2' in flags(text, "policy")
    assert '--nodelist="$(gym_nodelist 0 1)" --nodes=1 --ntasks=1' in flags(text, "driver")


def test_several_instances_larger_than_a_node_have_a_gateway() -> None:
    service = {**VLLM, "tensor_parallel_size": 16, "number_of_instances": 2, "extra_args": "--seed 1"}
    text = script(services={"policy": service}, compute=pools(gpu=4))
    told = command(text, "policy")
    assert (
        '"$gym_gateway" --model org/model --port 8000 --tensor-parallel-size 16 --pipeline-parallel-size 1 '
        "--number-of-instances 2 --gpus-per-node 8 '--extra-args=--seed 1'"
    ) in told
    packed = re.search(r"printf %s (\S+) \| base64 -d", told)
    assert packed is not None
    assert base64.b64decode(packed[1]) == Path(ray_serve_gateway.__file__).read_bytes()


def test_a_gateway_is_used_where_asked() -> None:
    told = command(script(services={"policy": {**VLLM, "use_ray_serve": True}}), "policy")
    assert 'exec python3 "$gym_gateway" --model org/model' in told and "symmetric-run" not in told


def test_two_tiers_have_a_router_before_them() -> None:
    pair = {
        **PD,
        "prefill": {"node_pool": "one", "tensor_parallel_size": 8},
        "decode": {"node_pool": "two", "tensor_parallel_size": 8},
    }
    text = script(services={"policy": pair}, compute=pools(one=1, two=1), driver={"policy_model": "policy"})
    prefill, decode, router = (command(text, f"policy{part}") for part in ("_prefill", "_decode", ""))
    assert 'VLLM_NIXL_SIDE_CHANNEL_HOST="$(hostname)" VLLM_NIXL_SIDE_CHANNEL_PORT=5600' in prefill
    assert "VLLM_NIXL_SIDE_CHANNEL_PORT=5601" in decode
    assert '"kv_role": "kv_producer"' in prefill and '"kv_role": "kv_consumer"' in decode
    assert '"kv_connector": "NixlConnector"' in decode and '"kv_load_failure_policy": "fail"' in decode
    assert "--port 8001" in prefill and "--port 8002" in decode
    assert router == (
        "exec vllm-router --vllm-pd-disaggregation --host 0.0.0.0 --port 8000 --prefill-policy cache_aware "
        "--decode-policy cache_aware --intra-node-data-parallel-size 1 --request-timeout-secs 86400 --log-level error "
        '--prefill "http://${GYM_NODE_0}:8001" --decode "http://${GYM_NODE_1}:8002"'
    )
    assert '--nodelist="$(gym_nodelist 1 1)"' in flags(text, "policy_decode")
    assert '--nodelist="$(gym_nodelist 0 1)"' in flags(text, "policy")
    assert 'gym_ready policy-decode 60 gym_probe_http "http://${gym_nodes[1]}:8002/health"' in text
    assert "+policy_base_url=http://localhost:8000/v1" in driver_words(text)


def test_a_server_on_each_node_of_a_tier_has_an_address_of_its_own() -> None:
    pair = {**PD, "server_per_node": True, "prefill": {"node_pool": "one"}, "decode": {"node_pool": "two"}}
    compute = pools(one=1, two=2)
    for pool in compute["node_pools"].values():
        del pool["gpus_per_node"]
    text = script(services={"policy": pair}, compute=compute)
    assert command(text, "policy").endswith('--decode "http://${GYM_NODE_1}:8002" --decode "http://${GYM_NODE_2}:8002"')
    assert "symmetric-run" not in command(text, "policy_decode")
    for node in (1, 2):
        assert f'gym_ready policy-decode 60 gym_probe_http "http://${{gym_nodes[{node}]}}:8002/health"' in text


def test_a_ray_cluster_has_a_head_and_workers() -> None:
    ray = {
        "type": "ray",
        "container": "ray:2",
        "resources": {"cpu": {"slots": 4}},
        "node_pools": ["gpu", "cpu"],
        "num_cpus": 16,
        "extra_args": "--include-dashboard=false --temp-dir /t",
    }
    text = script(services={"ray": ray}, compute=pools(gpu=2, cpu=3))
    assert command(text, "ray") == (
        'exec ray start --block --head --port 6379 --node-ip-address "${GYM_RAY_ADDRESS_RAY%:*}" --num-cpus=16 '
        "--include-dashboard=false --temp-dir /t"
    )
    address = '"$GYM_RAY_ADDRESS_RAY"'
    assert command(text, "ray_cpu").splitlines() == [
        f"until ray status --address {address} >/dev/null 2>&1; do sleep 2; done",
        f"exec ray start --block --address {address} --num-cpus=16 --resources='{{\"slots\": 4}}' --temp-dir /t",
    ]
    assert '--nodelist="$(gym_nodelist 1 1)" --nodes=1' in flags(text, "ray_gpu"), "the head's node is no worker"
    assert '--nodelist="$(gym_nodelist 2 3)" --nodes=3 --ntasks=3' in flags(text, "ray_cpu")
    assert "export GYM_RAY_RAY_GPU_WORKERS=1\n" in text and "export GYM_RAY_RAY_CPU_WORKERS=3\n" in text
    assert 'export GYM_RAY_ADDRESS_RAY="$(gym_ip 0):6379"' in text
    assert 'gym_ready ray 60 gym_probe_port "${gym_nodes[0]}" 6379' in text


def test_pools_and_nodes_are_exported() -> None:
    text = script(services={}, compute=pools(a=1, b=2))
    assert 'export GYM_POOL_B_NODES="$(gym_nodelist 1 2)"' in text
    assert 'export GYM_NODE_2="${gym_nodes[2]}"' in text
    assert 'if [ "${#gym_nodes[@]}" -ne 3 ]' in text


def test_the_driver_runs_beside_the_policy() -> None:
    services = {"judge": {**VLLM, "node_pool": "a"}, "policy": {**VLLM, "node_pool": "b", "port": 8001}}
    text = script(services=services, compute=pools(a=1, b=1), driver={"policy_model": "policy"})
    assert '--nodelist="$(gym_nodelist 1 1)"' in flags(text, "driver")


def test_one_small_instance_takes_one_node_of_its_pool() -> None:
    text = script(services={"policy": {**VLLM, "tensor_parallel_size": 8}}, compute=pools(gpu=2))
    assert "--nodes=1 --ntasks=1" in flags(text, "policy") and "symmetric-run" not in text


def test_nothing_of_resuming_is_in_a_job_that_is_not_resumable() -> None:
    assert "sacct" not in script() and "sacct" in script(benchmark={"resumable": True})
    limited = script(benchmark={"resumable": {"max_walltime": "2-00", "max_retries": 7}})
    assert "-gt 7 ]" in limited and '"$spent" -ge 172800' in limited
    assert not re.search(r"@[A-Z_]+@", limited)


def test_a_collector_stands_beside_the_driver() -> None:
    otel = {"endpoint": "https://c/otlp", "service_name": "evals", "container": "otel:1"}
    made = plan({"OTEL_TOKEN": "tok-secret"}, otel=otel, driver={"policy_model": "policy"})
    text = job_script(made)
    assert "tok-secret" not in text and made.private_files()["env/otel.env"] == "GYM_OTEL_TOKEN=tok-secret\n"
    assert command(text, "otel") == f"exec otelcol-contrib --config {FOLDER}/otel/collector.yaml"
    assert text.index("gym_ready otel 300") < text.index("gym_start_policy() {")
    assert text.index('gym_end 30 "$OTEL_PID"') > text.index('wait "$gym_driver"')
    assert "export NEMO_GYM_OTEL_ENABLED=true" in text
    assert f"export NEMO_GYM_OTEL_RUN_ID={RUN_ID}" in text
    assert "export NEMO_GYM_OTEL_SPAN_GROUPS=default,verify" in text
    assert "export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318" in text
    assert made.collector_config is not None and "tok-secret" not in made.collector_config
    collector = yaml.safe_load(made.collector_config)
    assert collector["exporters"]["otlphttp"] == {
        "endpoint": "https://c/otlp",
        "headers": {"Authorization": "Bearer ${env:GYM_OTEL_TOKEN}"},
    }
    attributes = {one["key"]: one["value"] for one in collector["processors"]["resource"]["attributes"]}
    assert attributes["benchmark"] == "mcqa" and attributes["service.name"] == "evals" and attributes["user"] == "me"
    scrapes = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert [(one["job_name"], one["static_configs"][0]["targets"]) for one in scrapes] == [
        ("policy", ["${env:GYM_NODE_0}:8000"]),
        ("gpu", ["${env:GYM_NODE_0}:9400"]),
        ("node", ["${env:GYM_NODE_0}:9100"]),
    ]


def test_a_bare_config_has_no_collector() -> None:
    assert plan().collector is None and "OTEL" not in script()


def test_the_drivers_own_variables_stand_before_those_of_telemetry() -> None:
    otel = {"endpoint": "https://c", "service_name": "s"}
    driver = {"env": {"NEMO_GYM_OTEL_SPAN_GROUPS": "lit:all"}}
    text = script({"OTEL_TOKEN": "t"}, otel=otel, driver=driver)
    assert "export NEMO_GYM_OTEL_SPAN_GROUPS=all" in text and "default,verify" not in text
    secret = {"env": {"NEMO_GYM_OTEL_SPAN_GROUPS": "host:GROUPS"}}
    assert "NEMO_GYM_OTEL_SPAN_GROUPS" not in script({"OTEL_TOKEN": "t", "GROUPS": "g"}, otel=otel, driver=secret)


def test_here_steps_are_process_groups_without_containers() -> None:
    text = script(compute={"type": "local"}, services={"policy": {**VLLM, "mounts": ["/a:/b"]}})
    assert "srun" not in text and "#SBATCH" not in text and "container" not in text
    assert "exec setsid bash -c 'exec vllm serve org/model --port 8000" in text
    assert script(compute={**SLURM, "type": "local", "walltime": "1-00"}).count("setsid") == 2


def test_instances_over_nodes_share_a_port_and_have_ranks() -> None:
    service = {
        **VLLM,
        "tensor_parallel_size": 4,
        "number_of_instances": 4,
        "extra_args": "--api-server-count 2 --seed 1",
    }
    told = command(script(services={"policy": service}, compute=pools(gpu=2)), "policy").splitlines()
    serve = "vllm serve org/model --port 8000 --tensor-parallel-size 4"
    shared = (
        '--data-parallel-size 4 --data-parallel-size-local 2 --data-parallel-address "$GYM_HEAD_POLICY" '
        "--data-parallel-rpc-port 13345"
    )
    assert told == [
        'if [ "${SLURM_NODEID:-0}" -eq 0 ]; then',
        f"  exec {serve} --api-server-count 2 --seed 1 {shared}",
        "fi",
        f"exec {serve} --seed 1 {shared} --headless --data-parallel-start-rank $((SLURM_NODEID * 2))",
    ]


def test_health_is_asked_at_its_own_port_and_the_model_by_the_name_it_is_served_under() -> None:
    service = {**VLLM, "served_model_name": "name", "health_check": {"port": 9001, "path": "/ready"}}
    text = script(services={"policy": service}, driver={"policy_model": "policy"})
    assert 'gym_ready policy 60 gym_probe_http "http://${gym_nodes[0]}:9001/ready"' in text
    assert {"+policy_base_url=http://localhost:8000/v1", "+policy_model_name=name"} <= set(driver_words(text))


def test_steps_run_beside_others_and_not_without_their_variables() -> None:
    compute = pools(a=1, b=1)
    for pool in compute["node_pools"].values():
        del pool["gpus_per_node"]
    text = script(compute=compute, services={"policy": {**VLLM, "env": {"API_KEY": "lit:sk-1"}}})
    assert all("exec srun --overlap" in flags(text, step) for step in ("policy", "driver"))
    assert '. "$gym_dir/env/policy.env" || exit 1' in text
    assert f"--container-mounts={FOLDER}:{FOLDER} --container-image=python:3.12" in flags(text, "driver")
    assert 'export GYM_NODE_0="${gym_nodes[0]}"' in text
    assert "gpus-per-node" not in text and "None" not in text


def test_a_collector_is_on_the_drivers_node_and_gets_no_logs_unless_they_are_wanted() -> None:
    services = {"judge": {**VLLM, "node_pool": "a"}, "policy": {**VLLM, "node_pool": "b", "port": 8001}}
    otel = {"endpoint": "https://c", "service_name": "s", "gym_logs": False}
    made = plan(
        {"OTEL_TOKEN": "t"}, otel=otel, services=services, compute=pools(a=1, b=1), driver={"policy_model": "policy"}
    )
    text = job_script(made)
    assert '--nodelist="$(gym_nodelist 1 1)"' in flags(text, "otel")
    assert 'gym_ready otel 300 gym_probe_http "http://${gym_nodes[1]}:13133/"' in text
    assert "export NEMO_GYM_OTEL_LOGS_ENABLED=false" in text


def test_images_that_are_files_and_sources_of_mounts_must_be_there() -> None:
    images = {"a": "/images/a.sqsh", "b": "./b.sqsh", "c": "~/c.sqsh", "d": "nvcr.io/vllm:1"}
    services = {
        name: {**VLLM, "container": image, "port": 8000 + number, "mounts": ["/data:/data:ro"]}
        for number, (name, image) in enumerate(images.items())
    }
    run = RunPlan.of(config(services=services), RUN_ID, {}, user="me")
    assert run.needed_files() == ["/data", "/images/a.sqsh", "./b.sqsh", "~/c.sqsh"]
