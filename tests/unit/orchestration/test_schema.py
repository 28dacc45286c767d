"""What a submit config may say, and the sentence that anything else gets."""

import logging
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.orchestration.api import Otel, RayService, SubmitConfig, VllmPdService, VllmService
from nemo_gym.orchestration.checks import check
from nemo_gym.orchestration.errors import SubmitConfigError
from nemo_gym.orchestration.loading import load_submit_config, validated
from nemo_gym.orchestration.showing import shown
from nemo_gym.orchestration.values import EnvValue, duration_seconds
from tests.unit.orchestration.configs import VLLM, config, content, pools, write

PD = {"type": "vllm_pd", "container": "vllm:1", "model": "org/model"}


def refusal(data: dict[str, Any], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SubmitConfigError) as caught:
        check(validated(data, "submit.yaml"), environment or {})
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and "Traceback" not in text
    return text


def at(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The data with a value at a dotted path."""
    whole = OmegaConf.create(data)
    OmegaConf.update(whole, path, value, force_add=True)
    found = OmegaConf.to_container(whole)
    assert isinstance(found, dict)
    return {str(key): item for key, item in found.items()}


def test_defaults_are_those_of_the_schema() -> None:
    found = config()
    policy = found.services["policy"]
    assert isinstance(policy, VllmService)
    assert (policy.port, policy.tensor_parallel_size, policy.number_of_instances) == (8000, 1, 1)
    assert (policy.health_check.path, policy.health_check.timeout_seconds) == ("/health", 60)
    assert policy.data_parallel_rpc_port == 13345
    assert (found.driver.container, found.driver.policy_host) == ("python:3.12", "localhost")
    assert found.driver.policy_model_type == "openai_model"
    assert not found.otel.is_on, "a bare config sends nothing anywhere"
    assert found.driver.benchmarks["mcqa"].resumable is None


def test_resumable_is_a_switch_or_settings() -> None:
    def resume(value: Any) -> Any:
        return config(benchmark={"resumable": value}).driver.benchmarks["mcqa"].resumable

    assert resume(False) is None
    assert (resume(True).max_retries, resume(True).max_walltime) == (3, None)
    assert resume({"max_retries": 1, "max_walltime": "2-00"}).max_walltime == "2-00"


def test_tiers_inherit_from_their_service() -> None:
    service = {**PD, "port": 9000, "served_model_name": "m", "prefill": {}, "decode": {"port": 9100, "model": "other"}}
    pair = config(services={"policy": service}).services["policy"]
    assert isinstance(pair, VllmPdService)
    assert (pair.prefill.model, pair.prefill.port, pair.prefill.container) == ("org/model", 9001, "vllm:1")
    assert (pair.decode.model, pair.decode.port, pair.decode.served_model_name) == ("other", 9100, "m")
    assert (pair.prefill.data_parallel_rpc_port, pair.decode.data_parallel_rpc_port) == (13345, 13346)


def test_a_ray_service_has_pools() -> None:
    service = config(services={"ray": {"type": "ray", "container": "r", "node_pools": ["gpu"]}}).services["ray"]
    assert isinstance(service, RayService) and (service.port, service.node_pools) == (6379, ["gpu"])


MCQA = "resources_servers/mcqa/configs/mcqa.yaml"


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ({}, False),
        ({"enabled": False}, False),
        ({"endpoint": "http://c", "service_name": "s"}, True),
        ({"enabled": False, "endpoint": "http://c"}, False),
    ],
)
def test_otel_is_on_where_it_has_somewhere_to_send(settings: dict[str, Any], is_on: bool) -> None:
    assert Otel(**settings).is_on is is_on


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("services.policy.modle", "x", "services.policy.modle (no such key)"),
        ("driver.benchmarks.mcqa.retries", 1, "driver.benchmarks.mcqa.retries (no such key)"),
        ("job.output", "/x", "job.output (no such key)"),
        ("compute.cluster.node_pools.gpu.gpus", 1, "compute.cluster.node_pools.gpu.gpus (no such key)"),
        ("services.policy.type", "sglang", "services.policy.type (must be one of vllm, vllm_pd, ray)"),
        ("compute.cluster.type", "k8s", "compute.cluster.type (must be one of slurm, local)"),
        ("services.policy.number_of_instances", 0, "services.policy.number_of_instances (input should be greater"),
        ("services.policy.port", 70000, "services.policy.port (input should be less"),
        ("services.policy.env", {"A": "plain"}, "services.policy.env.A (has none of the prefixes lit:"),
        ("services.policy.env", {"A": "host:not a name"}, "services.policy.env.A (host: is followed by the name"),
        ("services.policy.env", {"A-B": "lit:x"}, "'A-B' is no name of an environment variable"),
        ("services.policy.extra_args", "--x 'open", "services.policy.extra_args (can't be read as arguments"),
        ("services.policy.mounts", ["/only"], "'/only' is no mount"),
        ("services.policy.mounts", ["/a b:/c"], "which a mount can't"),
        ("services.policy.health_check", {"path": "health"}, "services.policy.health_check.path"),
        ("driver.benchmarks", {"a/b": {}}, "'a/b' is no name"),
        ("driver.benchmarks", {"..": {}}, "'..' is no name"),
        ("driver.benchmarks", {}, "driver.benchmarks"),
        ("driver.benchmarks.mcqa.command", "true", "command excludes run and resumable"),
        ("driver.gym_install", {"repo": "r"}, "missing driver.gym_install.ref"),
        ("compute.cluster.walltime", 36000, "put it in quotes"),
        ("compute.cluster.walltime", "soon", "'soon' is no duration"),
        ("compute.cluster.walltime", "0", "is no time at all"),
        ("compute.cluster.account", "a b", "compute.cluster.account (must be one word"),
        ("compute.cluster.hostname", "-oProxyCommand=x", "compute.cluster.hostname"),
        ("compute.cluster.node_pools.gpu.extra_args", "'open", "can't be read as arguments"),
        ("compute.other", {"type": "local"}, "exactly one cluster is needed, and 2 is given"),
        ("job.output_path", "/with a blank", "choose a folder without"),
        ("otel.enabled", True, "it is enabled without endpoint and service_name"),
        ("otel.endpoint", "http://c", "it is enabled without service_name"),
    ],
)
def test_what_can_not_be_meant_is_refused_in_one_sentence(path: str, value: Any, said: str) -> None:
    base = content() if path != "driver.benchmarks" else {**content(), "driver": {}}
    text = refusal(at(base, path, value))
    assert text.startswith("submit.yaml: ") and said in text


def test_missing_and_wrong_keys_are_named_together() -> None:
    data = content(services={"policy": {"type": "vllm", "oops": 1}})
    del data["job"]
    assert refusal(data) == "submit.yaml: missing services.policy.model, job; wrong services.policy.oops (no such key)."


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"services": {"policy": {"type": "vllm", "model": "m"}}}, "missing services.policy.container"),
        ({"services": {"driver": VLLM}}, "services.driver: the name is taken"),
        ({"services": {"policy": {**VLLM, "placement": "moon"}}}, "services.policy.placement is 'moon'"),
        ({"services": {"policy": {**VLLM, "node_pool": "cpu"}}}, "names the node pool 'cpu'"),
        ({"services": {"r": {"type": "ray", "container": "r", "node_pools": ["cpu"]}}}, "names the node pool 'cpu'"),
        ({"services": {"r": {"type": "ray", "container": "r", "node_pool": "gpu"}}}, "takes node_pools, a list"),
        ({"services": {"a-b": VLLM, "a_b": {**VLLM, "port": 1}}}, "'a-b' and 'a_b' are one name in a script"),
        ({"services": {"a": VLLM, "b": VLLM}}, "'a' and 'b' both use port 8000"),
        ({"driver": {"policy_model": "judge"}}, "driver.policy_model is 'judge', and the services are policy"),
        (
            {"services": {"r": {"type": "ray", "container": "r"}}, "driver": {"policy_model": "r"}},
            "driver.policy_model is 'r', a Ray cluster",
        ),
        (
            {
                "driver": {
                    "policy_model": "policy",
                    "benchmarks": {"m": {"run": {"policy_base_url": "http://x"}}},
                }
            },
            "driver.benchmarks.m.run.policy_base_url is set, and driver.policy_model sets it too",
        ),
        ({"services": {"policy": {**VLLM, "tensor_parallel_size": 16}}}, "needs 16 GPUs (16 tensor × 1 pipeline × 1)"),
        (
            {"services": {"a": {**VLLM, "tensor_parallel_size": 8}, "b": {**VLLM, "port": 8001}}},
            "the services a and b need 9 GPUs together, and their nodes have 8",
        ),
        (
            {"services": {"p": {**VLLM, "number_of_instances": 3}}, "compute": pools(gpu=2)},
            "3 instances can't be spread evenly over 2 nodes",
        ),
        (
            {
                "compute": {
                    "type": "slurm",
                    "node_pools": {"a": {"partition": "x"}, "b": {"partition": "y"}},
                }
            },
            "compute.cluster.node_pools differ in partition (a: x, b: y)",
        ),
        (
            {"services": {"p": {**PD, "prefill": {}, "decode": {}}}},
            "services.p: prefill and decode each need a node_pool of their own",
        ),
        (
            {
                "services": {"p": {**PD, "prefill": {"node_pool": "b"}, "decode": {"node_pool": "c"}}},
                "compute": pools(a=1, b=1, c=1),
            },
            "its router runs on the first node pool",
        ),
        (
            {
                "services": {
                    "p": {
                        **PD,
                        "server_per_node": True,
                        "prefill": {"number_of_instances": 2},
                        "decode": {},
                    }
                }
            },
            "leave number_of_instances at 1",
        ),
        (
            {
                "services": {
                    "p": {**PD, "prefill": {"data_parallel_rpc_port": 5}, "decode": {"data_parallel_rpc_port": 5}}
                }
            },
            "have the same data_parallel_rpc_port",
        ),
        (
            {"services": {"policy": {**VLLM, "env": {"A": "host:NOT_SET"}}}},
            "services.policy.env.A is host:NOT_SET, and NOT_SET is not set here",
        ),
        (
            {"services": {"p": {**PD, "prefill": {}, "decode": {"env": {"A": "host:NOT_SET"}}}}},
            "services.p.decode.env.A is host:NOT_SET, and NOT_SET is not set here",
        ),
        (
            {"otel": {"endpoint": "http://c", "service_name": "s"}},
            "otel.token_env is OTEL_TOKEN, which is not set here",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(parts: dict[str, Any], said: str) -> None:
    assert said in refusal(content(**parts))


def test_services_on_different_nodes_may_have_the_same_port() -> None:
    services = {"a": {**VLLM, "node_pool": "one"}, "b": {**VLLM, "node_pool": "two"}}
    check(config(services=services, compute=pools(one=1, two=1)), {})


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"services": {"p": {**VLLM, "tensor_parallel_size": 8}}}, []),
        ({"services": {"p": {**VLLM, "tensor_parallel_size": 2}}}, ["services.p uses 2 of 8 GPUs: 6 stay idle."]),
        (
            {"services": {"p": {**VLLM, "tensor_parallel_size": 8, "node_pool": "gpu"}}, "compute": pools(gpu=2)},
            ["services.p uses 8 of 16 GPUs: 8 stay idle."],
        ),
        ({"services": {"p": VLLM}, "compute": {"type": "slurm", "node_pools": {"gpu": {}}}}, []),
        ({"compute": {"type": "local"}}, ["Containers and mounts are not used here"]),
        (
            {
                "services": {"p": {**VLLM, "tensor_parallel_size": 16, "number_of_instances": 3}},
                "compute": pools(gpu=7),
            },
            ["services.p uses 48 of 56 GPUs: 8 stay idle."],
        ),
        (
            {"services": {"a": {**VLLM, "tensor_parallel_size": 4}, "b": {**VLLM, "port": 8001}}},
            ["services.a shares its nodes with another model", "services.b shares its nodes with another model"],
        ),
        (
            {"services": {}, "benchmark": {"run": {"limmit": 5, "config_paths": ["nope.yaml", MCQA]}}},
            [
                "driver.benchmarks.mcqa.run: `limmit` is no setting of Gym. Did you mean `limit`?",
                "driver.benchmarks.mcqa.run.config_paths names nope.yaml, which isn't here",
            ],
        ),
        ({"services": {}, "driver": {"policy_model_type": "no_model"}}, ["policy_model_type is no_model, which isn't"]),
        (
            {
                "services": {},
                "driver": {"policy_model_type": "no_model", "gym_install": {"repo": "r", "ref": "v"}},
                "benchmark": {"run": {"config_paths": ["nope.yaml"]}},
            },
            [],
        ),
        (
            {
                "services": {"p": {**VLLM, "tensor_parallel_size": 8, "extra_args": "--api-key hush --seed 1"}},
                "benchmark": {"command": "TOKEN=$MINE HF_TOKEN=hush eval-it"},
            },
            [
                "services.p.extra_args says the value of --api-key, which the process list shows",
                "driver.benchmarks.mcqa.command says the value of HF_TOKEN",
            ],
        ),
    ],
)
def test_what_is_odd_but_runs_is_a_warning(parts: dict[str, Any], said: list[str]) -> None:
    warnings = check(config(**parts), {})
    assert len(warnings) == len(said)
    assert all(text in warning for warning, text in zip(warnings, said, strict=True))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("1:30", 90), ("04:00:00", 14400), ("2-00", 172800), ("1-02:03", 93780), ("0-00:00:07", 7)],
)
def test_durations(text: str, seconds: int) -> None:
    assert duration_seconds(text) == seconds


def test_env_values_keep_colons() -> None:
    assert EnvValue.of("lit:http://a:1") == EnvValue("lit", "http://a:1")
    assert EnvValue.of("lit:") == EnvValue("lit", "")


def test_a_config_is_composed_of_fragments_and_overrides(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "big.yaml").write_text(
        "# @package _global_\ncompute: {big: {type: slurm, node_pools: {gpu: {nodes: 2}}}}\n"
    )
    data = content()
    del data["compute"]
    data = {"defaults": [{"cluster": "big"}, "_self_"], "_name": "org/other", **data}
    data["services"]["policy"]["model"] = "${_name}"
    path = write(tmp_path, data)
    found = load_submit_config(path, ["driver.benchmarks.mcqa.run.limit=7", "+driver.policy_model=policy"])
    assert isinstance(found, SubmitConfig) and found.cluster == "big"
    assert found.driver.benchmarks["mcqa"].run == {"limit": 7}
    policy = found.services["policy"]
    assert isinstance(policy, VllmService) and policy.model == "org/other"
    changed = load_submit_config(path, ["_name=org/third"]).services["policy"]
    assert isinstance(changed, VllmService) and changed.model == "org/third"


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        ("a: [1\n", (), "line 2"),
        ("- 1\n", (), "s.yaml"),
        ("a: ${b.c}\n", (), "can't be composed: Interpolation key 'b.c' not found"),
        ("defaults: [nowhere]\n", (), "can't be composed: In 's'"),
        ("services: ???\n", (), "services"),
        ("a: 1\n", ("a=[",), "can't be composed"),
        ("a: 1\n", ("b=1",), "write +key=value to add it"),
        ("_a: 1\n", ("+_b=1",), "adds to scratch values"),
        ("_a: 1\n", ("++_a.b=1",), "adds to scratch values"),
        ("a: 1\n", ("b.api_key=sk-hidden-12345",), "can't be composed"),
        ("a: 1\n", ("a.api_key=[sk-hidden-12345",), "can't be composed"),
    ],
)
def test_what_can_not_be_composed_is_one_sentence(
    tmp_path: Path, text: str, overrides: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(SubmitConfigError) as caught:
        load_submit_config(path, overrides)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert "sk-hidden" not in str(caught.value)


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "my config.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(SubmitConfigError, match="is no text in UTF-8"):
        load_submit_config(tmp_path / "my config.yaml")


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    path = write(tmp_path, content(), "my, (odd) config=1.yaml")
    assert load_submit_config(path).cluster == "cluster"


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere.yaml", "doesn't exist"), (".", "is a folder"), ("s.yml", "doesn't end in .yaml")]
)
def test_a_path_that_is_no_config_is_one_sentence(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "s.yml").touch()
    with pytest.raises(SubmitConfigError, match=said):
        load_submit_config(tmp_path / name)


def test_a_secret_of_a_variable_is_hidden_wherever_else_it_stands() -> None:
    service = {**VLLM, "env": {"API_KEY": "lit:sk-long-1", "NAME": "lit:kept"}, "pre_command": "login sk-long-1"}
    data = shown(config(services={"policy": service}, benchmark={"run": {"note": "asked with sk-long-1"}}))
    assert "sk-long-1" not in str(data)
    assert data["services"]["policy"]["env"] == {"API_KEY": "lit:****", "NAME": "lit:kept"}


def test_hydra_may_speak_again_afterwards(tmp_path: Path) -> None:
    hydra_log = logging.getLogger("hydra")
    with pytest.raises(SubmitConfigError):
        load_submit_config(write(tmp_path, {"a": "${nowhere}"}))
    assert not hydra_log.disabled


def test_problems_beyond_the_first_eight_are_counted() -> None:
    assert refusal(at(content(), "services.policy", {**VLLM, **{f"odd_{n}": 1 for n in range(9)}})).endswith(
        " and 1 more."
    )
