"""What config files say about what they configure, read without composing a run. Nothing here raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nemo_gym.config.directives import carry_out_directives, register_directive_resolvers
from nemo_gym.config.entries import implementation_blocks
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.facts import MANIFEST_FILE_NAME, Facts
from nemo_gym.config.interpolations import tolerantly_resolved
from nemo_gym.config.keys import (
    CONFIG_PATHS_KEY_NAME,
    ENVIRONMENT_SERVERS,
    MISSING,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
    SERVER_TYPES,
)
from nemo_gym.config.layers import Sources, gather
from nemo_gym.config.notices import quietly
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.config.yaml_files import load_yaml_mapping

_SIGNS_OF_SELF_CONTAINED_AGENTS = ("agent_framework", "anthropic_api_key")
_TELLING = (RESOURCES_SERVERS, RESPONSES_API_AGENTS, RESPONSES_API_MODELS, ENVIRONMENT_SERVERS)


class ConfigMetadata(NamedTuple):
    """What a config is about, as far as it says so."""

    domain: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class EnvironmentDetails:
    """What an environment is made of: names of instances with their kinds, and data sets with their types."""

    resources_servers: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)


def read_config_metadata(path: Path) -> ConfigMetadata:
    """The first domain and the first description of any server in a config file, else in what it includes."""
    domain = description = None
    for config in _tellings(path):
        domain = domain or _first_text(config, "domain")
        description = description or _first_text(config, "description")
        if domain and description:
            break
    return ConfigMetadata(domain, description)


def facts_of(path: Path) -> Facts:
    """What lists and searches need to know of a config file or manifest."""
    try:
        raw = load_yaml_mapping(path)
    except ConfigError:
        return Facts()
    if path.name == MANIFEST_FILE_NAME:
        return Facts(is_readable=True, manifest=raw)
    metadata = read_config_metadata(path)
    return Facts(
        is_readable=True,
        server_types=tuple(server_type for server_type in SERVER_TYPES if declares(raw, server_type)),
        benchmarks=sum(dataset.get("type") == "benchmark" for dataset in _all_datasets(raw)),
        agent_datasets=tuple(str(dataset.get("type")) for dataset in datasets_in(raw, RESPONSES_API_AGENTS)),
        agents=tuple(_agent_facts(block) for _, _, block in implementation_blocks(raw, RESPONSES_API_AGENTS)),
        domain=metadata.domain,
        description=metadata.description,
    )


def included_files(path: Path) -> list[str]:
    """The files a config includes, and those they include in turn, as they are written; the deepest first."""
    found: dict[str, None] = {}
    _include(path, found, ())
    return list(found)


def read_resources_server_value(path: Path) -> str | None:
    """What a resources server's config says it is good for."""
    values = (_first_text(config, "value", RESOURCES_SERVERS) for config in _tellings(path))
    return next((value for value in values if value), None)


def read_environment_details(path: Path) -> EnvironmentDetails:
    """What the environment of a config file, with all it includes, is made of."""
    config = composed_file(path)
    return EnvironmentDetails(
        resources_servers=[f"{name} ({kind})" for name, kind, _ in implementation_blocks(config, RESOURCES_SERVERS)],
        agents=[f"{name} ({kind})" for name, kind, _ in implementation_blocks(config, RESPONSES_API_AGENTS)],
        datasets=[f"{dataset.get('name')} ({dataset.get('type')})" for dataset in datasets_in(config)],
    )


def raw_config(path: Path) -> dict[str, Any]:
    """A file's own text as plain data; empty when it can't be read."""
    try:
        return load_yaml_mapping(path)
    except ConfigError:
        return {}


def composed_file(path: Path) -> dict[str, Any]:
    """A file with what it includes, its directives carried out; what has no value yet stays as written."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register_directive_resolvers()
    initial = OmegaConf.create({CONFIG_PATHS_KEY_NAME: [str(path)]})
    try:
        with quietly():
            layers = gather(Sources(initial=initial, reads_env_file=False))
            return tolerantly_resolved(carry_out_directives(layers.merged()))
    except (ConfigError, OmegaConfBaseException, ValueError):
        return raw_config(path)


def declares(config: Mapping[str, Any], server_type: str) -> bool:
    """Whether a config has a server of this type."""
    return any(True for _ in implementation_blocks(config, server_type))


def datasets_in(config: Mapping[str, Any], *server_types: str) -> Iterator[dict[str, Any]]:
    """The data sets that servers of these types (default: all) declare."""
    for _, _, block in implementation_blocks(config, *server_types):
        datasets = block.get("datasets")
        yield from (dataset for dataset in datasets if isinstance(dataset, dict)) if isinstance(datasets, list) else ()


def _tellings(path: Path) -> Iterator[dict[str, Any]]:
    """A config's own text, then the text of each file it includes, then all of them composed."""
    yield raw_config(path)
    for name in included_files(path):
        yield raw_config(resolve_under_roots(name))
    yield composed_file(path)


def _include(path: Path, found: dict[str, None], above: tuple[str, ...]) -> None:
    names = raw_config(path).get(CONFIG_PATHS_KEY_NAME)
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and name not in found and name not in above:
            _include(resolve_under_roots(name), found, (*above, name))
            found[name] = None


def _all_datasets(value: object) -> Iterator[dict[str, Any]]:
    """Every entry of every list called `datasets`, however deep."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if key == "datasets" and isinstance(item, list):
            yield from (dataset for dataset in item if isinstance(dataset, dict))
        else:
            yield from _all_datasets(item)


def _agent_facts(block: Mapping[str, Any]) -> dict[str, Any]:
    description = block.get("description")
    return {
        "bound": "resources_server" in block,
        "own": any(sign in block for sign in _SIGNS_OF_SELF_CONTAINED_AGENTS),
        "description": description if isinstance(description, str) else None,
    }


def _first_text(config: Mapping[str, Any], key: str, *server_types: str) -> str | None:
    for _, _, block in implementation_blocks(config, *(server_types or _TELLING)):
        value = block.get(key)
        if isinstance(value, str) and value and value != MISSING and "${" not in value:
            return value
    return None
