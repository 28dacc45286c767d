"""Which agent answers the rows of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from nemo_gym.config.entries import implementation_blocks, reference_name
from nemo_gym.config.environment_servers import environment_server_agent_names, environment_server_attributed_agent
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.interpolations import tolerantly_resolved
from nemo_gym.config.keys import (
    ENVIRONMENT_SERVER_ROUTES_KEY_NAME,
    ENVIRONMENT_SERVERS,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
)

Config = DictConfig | Mapping[str, Any]


def agents_by_resources_server(config: Config) -> dict[str, list[str]]:
    """For every resources server that agents are bound to: those agents, in config order."""
    agents: dict[str, list[str]] = {}
    for name, _, block in implementation_blocks(_plain(config), RESPONSES_API_AGENTS):
        if (resources := reference_name(block, "resources_server")) is not None:
            agents.setdefault(resources, []).append(name)
    return agents


def dataset_agent_pins(config: Config, instance: str) -> list[str]:
    """The agents that the data sets an instance declares are pinned to, each once."""
    blocks = [block for name, _, block in implementation_blocks(_plain(config)) if name == instance]
    datasets = [dataset for block in blocks for dataset in block.get("datasets") or () if isinstance(dataset, Mapping)]
    return list(dict.fromkeys(str(dataset["agent"]) for dataset in datasets if dataset.get("agent")))


def taskset_environment_server_name(config: Config, taskset: str) -> str:
    """The environment server that `environment_server_routes` sends a taskset to.

    Raises ConfigError when the route is missing, leads nowhere, or its server names agents that don't exist.
    """
    entries = _plain(config)
    routes = entries.get(ENVIRONMENT_SERVER_ROUTES_KEY_NAME) or {}
    name = routes.get(taskset) if isinstance(routes, Mapping) else None
    if not isinstance(name, str):
        raise ConfigError(
            f"The taskset `{taskset}` has no route: "
            f"add `{ENVIRONMENT_SERVER_ROUTES_KEY_NAME}: {{{taskset}: <environment server>}}`."
            f"{did_you_mean(taskset, map(str, routes))}"
        )
    servers = {server: block for server, _, block in implementation_blocks(entries, ENVIRONMENT_SERVERS)}
    if name not in servers:
        raise ConfigError(
            f"The taskset `{taskset}` is routed to `{name}`, which is no environment server of the config."
            f"{did_you_mean(name, servers)}"
        )
    agents = _names(entries, RESPONSES_API_AGENTS)
    for agent in environment_server_agent_names(servers[name]):
        if agent not in agents:
            raise ConfigError(
                f"The environment server `{name}` names the agent `{agent}`, which the config doesn't define."
                f"{did_you_mean(agent, agents)}"
            )
    return name


def resolve_dataset_agent(
    config: Config, declaring_instance: str, pin: str | None = None, *, taskset: str | None = None
) -> str | None:
    """The agent that answers a data set declared by an instance.

    Without a taskset: the declaring agent, else the pinned agent, else the only agent bound to the declaring resources
    server. With one: the declaring agent, else the agent its environment server attributes to (None when it fronts
    several). Raises ConfigError when that leaves none or a choice.
    """
    entries = _plain(config)
    if taskset is not None:
        return _agent_of_taskset(entries, declaring_instance, pin, taskset)
    if declaring_instance in _names(entries, RESPONSES_API_AGENTS):
        if pin not in (None, declaring_instance):
            raise ConfigError(f"A data set of the agent `{declaring_instance}` can't be pinned to `{pin}`.")
        return declaring_instance
    candidates = agents_by_resources_server(entries).get(declaring_instance, [])
    if pin is not None:
        if pin not in candidates:
            raise ConfigError(
                f"A data set of `{declaring_instance}` is pinned to the agent `{pin}`, which isn't bound to it."
                f"{did_you_mean(pin, candidates)}"
            )
        return pin
    if len(candidates) == 1:
        return candidates[0]
    found = f"{', '.join(candidates)} are all bound to it" if candidates else "no agent is bound to it"
    raise ConfigError(
        f"It isn't clear which agent answers the data sets of `{declaring_instance}`: {found}. Pin one with "
        f"`agent:` on the data set or with '+agent_map={{{declaring_instance}: <agent>}}'."
    )


def _agent_of_taskset(entries: Mapping[str, Any], declaring: str, pin: str | None, taskset: str) -> str | None:
    if pin is not None:
        raise ConfigError(f"A data set of `{declaring}` has both `taskset` and `agent`: drop one of them.")
    server = taskset_environment_server_name(entries, taskset)
    block = next(block for name, _, block in implementation_blocks(entries, ENVIRONMENT_SERVERS) if name == server)
    if declaring in _names(entries, RESPONSES_API_AGENTS):
        if declaring not in environment_server_agent_names(block):
            raise ConfigError(
                f"The taskset `{taskset}` goes to `{server}`, which doesn't name the agent `{declaring}`."
            )
        return declaring
    bound = reference_name(block, "resources_server")
    if declaring in _names(entries, RESOURCES_SERVERS) and bound not in (None, declaring):
        raise ConfigError(f"The taskset `{taskset}` of `{declaring}` goes to `{server}`, which is bound to `{bound}`.")
    return environment_server_attributed_agent(block)


def _plain(config: Config) -> dict[str, Any]:
    return tolerantly_resolved(config)


def _names(entries: Mapping[str, Any], server_type: str) -> list[str]:
    return [name for name, _, _ in implementation_blocks(entries, server_type)]
