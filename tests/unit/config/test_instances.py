"""Server instances and their datasets, as components and trainers see them."""

from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.config.instances import ServerInstance, server_instances
from nemo_gym.config_types import (
    AgentServerRef,
    BaseRunServerInstanceConfig,
    BenchmarkDatasetConfig,
    DatasetConfig,
    EnvironmentServerInstanceConfig,
    ModelServerRef,
    ResourcesServerInstanceConfig,
    ResponsesAPIAgentServerInstanceConfig,
    is_server_ref,
    maybe_get_server_instance_config,
)
from tests.unit.config.conftest import agent, model, resources


def test_instances_in_config_order_with_addresses_resolved_and_the_rest_as_written() -> None:
    config = {
        "policy_model": model(port="${p}", key="${gone}"),
        "tiny_env": resources(host="h", port=1),
        "scratch": {"x": 1},
        "head_server": resources(),
        "p": 7,
    }
    instances = server_instances(config)
    assert instances == [
        ServerInstance(
            "policy_model",
            "responses_api_models",
            "openai_model",
            {"entrypoint": "app.py", "port": 7, "key": "${gone}"},
        ),
        ServerInstance(
            "tiny_env", "resources_servers", "tiny", {"entrypoint": "app.py", "domain": "math", "host": "h", "port": 1}
        ),
    ]
    assert (instances[0].host, instances[0].port, instances[0].entrypoint) == ("", 7, "app.py")
    assert server_instances(OmegaConf.create(config)) == instances


def test_a_checked_instance_gives_its_block_to_change_in_place() -> None:
    live = OmegaConf.create(agent(datasets=[{"name": "d", "type": "example", "jsonl_fpath": "x"}]))
    instance, error = maybe_get_server_instance_config("a", live)
    assert error is None
    assert isinstance(instance, ResponsesAPIAgentServerInstanceConfig)
    assert instance.get_server_ref() == AgentServerRef(type="responses_api_agents", name="a")
    instance.get_inner_run_server_config_dict()["port"] = 3
    assert live.responses_api_agents.simple_agent.port == 3
    assert instance.get_inner_run_server_config().entrypoint == "app.py"
    assert instance.datasets == [DatasetConfig(name="d", type="example", jsonl_fpath="x")]


def test_what_is_no_instance() -> None:
    assert maybe_get_server_instance_config("a", 3) == (None, None)
    instance, error = maybe_get_server_instance_config("a", {"x": 1})
    assert instance is None and isinstance(error, ValidationError)


def test_a_domain_is_asked_of_resources_servers_only() -> None:
    instance, _ = maybe_get_server_instance_config("r", resources())
    assert isinstance(instance, ResourcesServerInstanceConfig)
    assert instance.get_inner_run_server_config().domain == "math"
    without = resources()
    del without["resources_servers"]["tiny"]["domain"]
    assert maybe_get_server_instance_config("r", without)[0] is None
    instance, _ = maybe_get_server_instance_config("m", model(domain="nonsense"))
    assert instance is not None and instance.get_inner_run_server_config().domain is None
    front = {"environment_servers": {"e": {"entrypoint": "app.py"}}}
    assert isinstance(maybe_get_server_instance_config("e", front)[0], EnvironmentServerInstanceConfig)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": "responses_api_models", "name": "m"}, ModelServerRef(type="responses_api_models", name="m")),
        (
            {"type": "responses_api_agents", "name": "m", "more": 1},
            AgentServerRef(type="responses_api_agents", name="m"),
        ),
        (
            OmegaConf.create({"type": "responses_api_models", "name": "m"}),
            ModelServerRef(type="responses_api_models", name="m"),
        ),
        ({"type": "responses_api_models"}, None),
        ({"type": "responses_api_models", "name": 3}, None),
        ({"type": "other", "name": "m"}, None),
        ("m", None),
    ],
)  # fmt: skip
def test_references(value: Any, expected: Any) -> None:
    assert is_server_ref(value) == expected


def test_components_may_subclass_the_config_with_fields_of_their_own() -> None:
    class Config(BaseRunServerInstanceConfig):
        judge: ModelServerRef
        limit: int = 3

    fields = {"name": "n", "host": "h", "port": 1, "entrypoint": "", "unknown": 1}
    config = Config.model_validate({**fields, "judge": {"type": "responses_api_models", "name": "j"}})
    assert (config.limit, config.judge.name, config.num_workers, config.domain) == (3, "j", None, None)
    assert not hasattr(config, "unknown")


def dataset(**fields: Any) -> DatasetConfig:
    return DatasetConfig.model_validate({"name": "d", "type": "example", "jsonl_fpath": "x", **fields})


def test_a_source_fills_the_older_identifier() -> None:
    config = dataset(source={"type": "huggingface", "repo_id": "a/b"})
    assert config.huggingface_identifier is not None and config.huggingface_identifier.repo_id == "a/b"
    source = {"type": "gitlab", "dataset_name": "n", "version": "1", "artifact_fpath": "f"}
    config = dataset(source=source)
    assert config.gitlab_identifier is not None and config.gitlab_identifier.version == "1"
    assert config.source is not None and config.source.model_dump() == source


def test_an_older_identifier_fills_the_source_and_both_leave_it_empty() -> None:
    hub, lab = {"repo_id": "a/b"}, {"dataset_name": "n", "version": "1", "artifact_fpath": "f"}
    with pytest.warns(DeprecationWarning):
        config = dataset(huggingface_identifier=hub)
    assert config.source is not None and config.source.type == "huggingface"
    with pytest.warns(DeprecationWarning):
        config = dataset(gitlab_identifier=lab)
    assert config.source is not None and config.source.type == "gitlab"
    with pytest.warns(DeprecationWarning):
        config = dataset(gitlab_identifier=lab, huggingface_identifier=hub)
    assert config.source is None
    with pytest.raises(ValidationError, match="either source or the older identifiers"):
        dataset(gitlab_identifier=lab, source={"type": "huggingface", "repo_id": "a/b"})


def test_empty_preparation_is_left_out_of_dumps() -> None:
    assert {"prepare_script", "prepare_dependencies"}.isdisjoint(dataset().model_dump())
    full = dataset(prepare_script="p.py", prepare_dependencies=["x"]).model_dump(mode="json")
    assert (full["prepare_script"], full["prepare_dependencies"]) == ("p.py", ["x"])


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "train"},
        {"type": "validation"},
        {"num_repeats": 0},
        {"taskset": ""},
        {"license": "mine"},
        {"type": "benchmark"},
    ],
)
def test_data_sets_that_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        dataset(**fields)


def test_benchmark_data_sets() -> None:
    fields = {"name": "b", "type": "benchmark", "jsonl_fpath": "x", "prepare_script": "p.py"}
    config = BenchmarkDatasetConfig.model_validate({**fields, "agent": "a"})
    assert (config.num_repeats, config.agent) == (1, "a")
    assert "prepare_dependencies" not in config.model_dump()
    with pytest.raises(ValidationError, match="exclude each other"):
        BenchmarkDatasetConfig.model_validate({**fields, "agent": "a", "taskset": "t"})
