"""Which agents, resources servers and environment servers a config has, and how they belong together.

Blocks are read leniently, without their classes: the config of a running set may come from another version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nemo_gym.config.entries import implementation_blocks, reference_name
from nemo_gym.config.environment_servers import (
    environment_server_agent_names,
    environment_server_attributed_agent,
    environment_servers_by_agent,
)
from nemo_gym.config.errors import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import (
    ENVIRONMENT_SERVERS,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    SERVER_TYPES,
)


@dataclass(frozen=True)
class Server:
    """One server instance: its name, the kind of server, its implementation and that block."""

    name: str
    server_type: str
    implementation: str
    block: Mapping[str, Any]

    @property
    def agents(self) -> list[str]:
        """For an environment server: the agents it names, in config order."""
        return environment_server_agent_names(self.block)

    @property
    def attributed_agent(self) -> str | None:
        """For an environment server: the agent its results are counted for."""
        return environment_server_attributed_agent(self.block)

    @property
    def resources_server(self) -> str | None:
        """The resources server it is bound to."""
        return reference_name(self.block, "resources_server")


class Topology:
    """The servers of a config by name and by who fronts whom."""

    def __init__(self, config: Mapping[Any, Any]) -> None:
        self._config = _plain(config)
        self._servers = {
            name: Server(name, server_type, implementation, block)
            for server_type in SERVER_TYPES
            for name, implementation, block in implementation_blocks(self._config, server_type)
        }

    def __contains__(self, name: object) -> bool:
        return name in self._servers

    def get(self, name: str) -> Server | None:
        return self._servers.get(name)

    def of_type(self, server_type: str) -> list[Server]:
        return [server for server in self._servers.values() if server.server_type == server_type]

    @property
    def agents(self) -> list[str]:
        return [server.name for server in self.of_type(RESPONSES_API_AGENTS)]

    def implementation(self, name: str) -> str | None:
        server = self._servers.get(name)
        return server.implementation if server is not None else None

    @cached_property
    def environment_servers_by_agent(self) -> dict[str, list[str]]:
        return environment_servers_by_agent(self._config)

    def environment_server_of(self, agent: str) -> str:
        return environment_server_for_agent(agent, self.environment_servers_by_agent)

    def unknown_agent(self, name: str) -> str | None:
        """Why a name is no agent of this config; None when it is one."""
        server = self._servers.get(name)
        if server is None:
            return f"there is no agent `{name}`.{did_you_mean(name, self.agents)} Agents: {', '.join(self.agents)}."
        if server.server_type != RESPONSES_API_AGENTS:
            return f"`{name}` is no agent: it is one of the {server.server_type}. Agents: {', '.join(self.agents)}."
        return None

    def declaring(self) -> Iterator[tuple[Server, Mapping[str, Any]]]:
        """Every declared data set with the agent or resources server that declares it, in config order."""
        for name in self._config:
            server = self._servers.get(name)
            datasets = server.block.get("datasets") if server is not None else None
            if server is None or not isinstance(datasets, list):
                continue
            if server.server_type in (RESOURCES_SERVERS, RESPONSES_API_AGENTS):
                yield from ((server, entry) for entry in datasets if isinstance(entry, Mapping))


def environment_server_for_agent(agent_name: str, servers_by_agent: Mapping[str, list[str]]) -> str:
    """The one environment server of an agent.

    Raises AgentWithoutEnvironmentServerError or AmbiguousEnvironmentServerError where there isn't exactly one.
    """
    servers = servers_by_agent.get(agent_name, [])
    if not servers:
        raise AgentWithoutEnvironmentServerError(
            f"No environment server fronts the agent `{agent_name}`: add a block with `agent_server: {{type: "
            f"{RESPONSES_API_AGENTS}, name: {agent_name}}}` under `{ENVIRONMENT_SERVERS}`."
        )
    if len(servers) > 1:
        raise AmbiguousEnvironmentServerError(
            f"The agent `{agent_name}` has several environment servers ({', '.join(servers)}): choose one by "
            "environment_routing_mode=legacy and environment_server_name."
        )
    return servers[0]


def _plain(config: Mapping[Any, Any]) -> dict[Any, Any]:
    if isinstance(config, dict):
        return config
    from omegaconf import OmegaConf

    if not OmegaConf.is_config(config):
        return dict(config)
    plain = OmegaConf.to_container(config, resolve=False)
    return plain if isinstance(plain, dict) else {}
