"""What an environment is made of, read from its composed config."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.compose import compose
from nemo_gym.config.entries import reference_name
from nemo_gym.config.environment_servers import environment_server_agent_names
from nemo_gym.config.instances import ServerInstance, server_instances
from nemo_gym.config.keys import (
    CONFIG_PATHS_KEY_NAME,
    DUMMY_MODEL,
    ENVIRONMENT_SERVERS,
    NO_MODEL_SETTINGS,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
)
from nemo_gym.config.layers import Sources
from nemo_gym.config.roots import also_searched
from nemo_gym.config.routing import resolve_dataset_agent
from nemo_gym.environment.errors import EnvironmentValidationError

_MIRRORED_DATASET_FIELDS = ("name", "type", "jsonl_fpath", "prepare_script", "prompt_config", "num_repeats")


@dataclass(frozen=True)
class Component:
    """A server that takes part. `boundary` is its server type."""

    role: str
    name: str
    implementation: str
    boundary: str
    entrypoint: str


@dataclass(frozen=True)
class Composition:
    """What runs, and on which data sets. `owner` is the instance that declares these."""

    config: DictConfig
    owner: ServerInstance
    agent: ServerInstance
    resources_server: ServerInstance | None
    components: list[Component]
    datasets: list[dict[str, Any]]

    @property
    def model_server(self) -> str | None:
        """The model server instance that the agent calls."""
        return reference_name(self.agent.block, "model_server")

    @property
    def rollout_driver(self) -> str | None:
        value = self.config.get("rollout_collection_driver")
        return None if value is None else str(value)

    @property
    def grading_mode(self) -> str | None:
        value = self.resources_server.block.get("grading_mode") if self.resources_server else None
        return None if value is None else str(value)

    def mirrors(self) -> dict[str, Any]:
        """What a manifest repeats of the config, as a manifest has it."""
        return {
            "resources_server": self.resources_server.implementation if self.resources_server else None,
            "agent_server": self.agent.implementation,
            "datasets": self.datasets,
            "model_server": self.model_server,
            "rollout_driver": self.rollout_driver,
            "grading_mode": self.grading_mode,
        }


def searched_first(root: Path) -> AbstractContextManager[None]:
    """Find components below a folder before all others."""
    return also_searched(first=[root.absolute()])


def read_composition(config_path: Path, dataset_owner: str | None = None) -> Composition:
    """Compose a config by itself, without a model, and say what it is made of.

    Raises ConfigError for a config that is wrong, EnvironmentValidationError where it isn't clear whose data sets are
    meant or which agent answers them.
    """
    initial = OmegaConf.create({**NO_MODEL_SETTINGS, CONFIG_PATHS_KEY_NAME: [str(config_path.absolute())]})
    config = compose(Sources(initial=initial, reads_env_file=False), offline=True).config
    instances = server_instances(config)
    owner = _owner(instances, dataset_owner, config_path)
    by_name = {instance.name: instance for instance in instances}
    agent = by_name[_agent_name(config, owner)]
    bound = reference_name(agent.block, "resources_server")
    resources = by_name.get(bound or "") or (owner if owner.server_type == RESOURCES_SERVERS else None)
    return Composition(config, owner, agent, resources, _components(instances, agent, resources), _datasets(owner))


def _owner(instances: list[ServerInstance], named: str | None, config_path: Path) -> ServerInstance:
    declaring = [instance for instance in instances if instance.block.get("datasets")]
    if named is not None:
        found = next((instance for instance in declaring if instance.name == named), None)
        if found is None:
            names = ", ".join(instance.name for instance in declaring) or "none"
            raise EnvironmentValidationError(
                f"dataset_owner is `{named}`, which declares no data sets in {config_path}. Instances that do: {names}."
            )
        return found
    for server_type in (RESOURCES_SERVERS, RESPONSES_API_AGENTS):
        candidates = [instance for instance in declaring if instance.server_type == server_type]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(instance.name for instance in candidates)
            raise EnvironmentValidationError(
                f"{config_path}: {names} all declare data sets. Name the one that is meant as dataset_owner."
            )
    raise EnvironmentValidationError(f"{config_path} declares no data sets: an environment needs some to run on.")


def _agent_name(config: DictConfig, owner: ServerInstance) -> str:
    names = {
        resolve_dataset_agent(config, owner.name, dataset.get("agent"), taskset=dataset.get("taskset"))
        for dataset in owner.block["datasets"]
    }
    if len(names) != 1 or None in names:
        shown = ", ".join(sorted(str(name) for name in names))
        raise EnvironmentValidationError(
            f"The data sets of `{owner.name}` go to several agents ({shown}): a manifest describes one."
        )
    return str(names.pop())


def _datasets(owner: ServerInstance) -> list[dict[str, Any]]:
    return [
        {field: dataset[field] for field in _MIRRORED_DATASET_FIELDS if dataset.get(field) is not None}
        for dataset in owner.block["datasets"]
    ]


def _components(
    instances: list[ServerInstance], agent: ServerInstance, resources: ServerInstance | None
) -> list[Component]:
    model = reference_name(agent.block, "model_server")
    roles: dict[str, str] = {}
    if resources is not None:
        roles[resources.name] = "resources_server"
    roles[agent.name] = "agent_server"
    for instance in instances:
        if instance.server_type == ENVIRONMENT_SERVERS and agent.name in environment_server_agent_names(instance.block):
            roles[instance.name] = "environment_server"
        if instance.server_type == RESPONSES_API_MODELS and instance.name == model and not _is_stand_in(instance):
            roles[instance.name] = "model_server"
    found: Mapping[str, ServerInstance] = {instance.name: instance for instance in instances}
    return [
        Component(role, name, found[name].implementation, found[name].server_type, found[name].entrypoint)
        for name, role in roles.items()
    ]


def _is_stand_in(instance: ServerInstance) -> bool:
    return instance.implementation == DUMMY_MODEL
