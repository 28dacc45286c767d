"""One global config out of all its layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.agent_composition import compose_unbound_agent, held_agent_names
from nemo_gym.config.aliases import apply_legacy_agent_aliases
from nemo_gym.config.checks import almost_servers, dangling_references, missing_values, model_pairings
from nemo_gym.config.directives import carry_out_directives, register_directive_resolvers
from nemo_gym.config.environment_servers import front_agents
from nemo_gym.config.errors import ConfigError, raise_problems
from nemo_gym.config.instances import ServerInstanceConfig, maybe_get_server_instance_config
from nemo_gym.config.interpolations import tolerantly_resolved
from nemo_gym.config.key_checks import misspelled_servers, misspelled_settings, unused_in_env_file
from nemo_gym.config.keys import (
    DUMMY_MODEL,
    NEMO_GYM_RESERVED_TOP_LEVEL_KEYS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
)
from nemo_gym.config.layers import Layers, Sources, gather, plain
from nemo_gym.config.notices import warn
from nemo_gym.config.origins import Origins
from nemo_gym.config.secrets import recursively_hide_secrets
from nemo_gym.config.settings import fill_in_settings


@dataclass(frozen=True)
class Composed:
    """The global config, and who set each of its values."""

    config: DictConfig
    origins: Origins


def compose(sources: Sources, *, offline: bool = False, hide_secrets: bool = False) -> Composed:
    """Compose, check and complete the global config.

    Raises ConfigError: one that holds everything found wrong at the stage that found it (reading, directives, agents,
    checking). Warnings and notices go to stderr.
    """
    register_directive_resolvers()
    layers = gather(sources)
    raise_problems(layers.problems)
    origins = layers.origins()
    entries = _composed_entries(layers, origins)
    problems: list[ConfigError] = missing_values(entries, origins)
    with _collecting(problems):
        front_agents(entries, tolerantly_resolved(entries))
    _drop_stand_in_models(entries)
    config = OmegaConf.create(entries)
    problems += _problems_of_servers(config, origins)
    with _collecting(problems):
        problems += fill_in_settings(config, list(valid_instances(config)), offline=offline)
    raise_problems(problems)
    _tell_about_keys(layers, entries, origins)
    if hide_secrets:
        recursively_hide_secrets(config)
    return Composed(config, origins)


def valid_instances(config: DictConfig) -> Iterator[ServerInstanceConfig]:
    """The servers of a config that pass their checks, in its order."""
    for name in config:
        entry = config._get_node(name)
        if name not in NEMO_GYM_RESERVED_TOP_LEVEL_KEYS and isinstance(entry, DictConfig):
            instance = maybe_get_server_instance_config(str(name), entry)[0]
            if instance is not None:
                yield instance


def _composed_entries(layers: Layers, origins: Origins) -> dict[str, Any]:
    """The merged layers with directives carried out and agents composed."""
    command_line = plain(layers.command_line.config)
    held = _held_overrides(layers, command_line)
    entries = carry_out_directives(layers.merged(without=held), origins)
    compose_unbound_agent(entries, held, command_line=command_line, origins=origins)
    apply_legacy_agent_aliases(entries)
    return entries


def _held_overrides(layers: Layers, command_line: dict[str, Any]) -> dict[str, Any]:
    """What the command line says about agents that only composition will create."""
    about_agents = [
        name for name, entry in command_line.items() if isinstance(entry, dict) and RESPONSES_API_AGENTS in entry
    ]
    if not about_agents:
        return {}
    created = held_agent_names(carry_out_directives(layers.below_command_line()))
    return {name: command_line[name] for name in about_agents if name in created}


def _problems_of_servers(config: DictConfig, origins: Origins) -> list[ConfigError]:
    resolved = tolerantly_resolved(config)
    return [
        *almost_servers(config, origins),
        *dangling_references(resolved, origins),
        *model_pairings(resolved),
    ]


def _drop_stand_in_models(entries: dict[str, Any]) -> None:
    """Where a real model stands beside the stand-in of the no-model mode, it takes over and the stand-in goes."""
    for entry in entries.values():
        models = entry.get(RESPONSES_API_MODELS) if isinstance(entry, dict) else None
        if not isinstance(models, dict) or DUMMY_MODEL not in models or len(models) == 1:
            continue
        stand_in = models.pop(DUMMY_MODEL)
        for kind, block in models.items():
            models[kind] = plain(OmegaConf.merge(OmegaConf.create(stand_in or {}), OmegaConf.create(block or {})))


def _tell_about_keys(layers: Layers, entries: dict[str, Any], origins: Origins) -> None:
    messages = {**misspelled_settings(entries, origins), **misspelled_servers(entries, origins)}
    if layers.includes.paths:
        env_file = plain(layers.env_file.config)
        beside = [layers.named_files(), plain(layers.initial), plain(layers.command_line.config)]
        messages = {**unused_in_env_file(env_file, entries, beside, layers.env_file.label), **messages}
        layers.tell_what_env_file_replaces(origins)
    for message in messages.values():
        warn(message)


@contextmanager
def _collecting(problems: list[ConfigError]) -> Iterator[None]:
    """Let the first error inside join the others."""
    try:
        yield
    except ConfigError as error:
        problems.append(error)
