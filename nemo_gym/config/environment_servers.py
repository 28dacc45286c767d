"""Environment servers: the agents they name, and the relays that stand for an agent nobody else fronts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, count
from typing import Any

from nemo_gym.config.entries import agent_stem, implementation_blocks
from nemo_gym.config.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousAgentRenameError,
    ConfigError,
    raise_problems,
)
from nemo_gym.config.hints import enumeration
from nemo_gym.config.keys import (
    ENVIRONMENT_SERVERS,
    ERROR_ON_AGENT_WITHOUT_ENVIRONMENT_SERVER_KEY_NAME,
    LEGACY_AGENT,
    MISSING,
    RESPONSES_API_AGENTS,
)
from nemo_gym.config.origins import dotted

AGENT_SERVER_FIELD = "agent_server"


def environment_server_agent_refs(block: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an environment server's block that name an agent: those of that type, and `agent_server` anyway."""
    return {
        field: value
        for field, value in block.items()
        if isinstance(value, Mapping) and (value.get("type") == RESPONSES_API_AGENTS or field == AGENT_SERVER_FIELD)
    }


def environment_server_agent_names(block: Mapping[str, Any]) -> list[str]:
    """The agents an environment server names, each once."""
    names = (value.get("name") for value in environment_server_agent_refs(block).values())
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name != MISSING))


def environment_server_attributed_agent(block: Mapping[str, Any]) -> str | None:
    """The agent an environment server's rollouts are counted for: its `agent_server`, else its only agent."""
    reference = block.get(AGENT_SERVER_FIELD)
    if isinstance(reference, Mapping) and isinstance(reference.get("name"), str):
        return str(reference["name"])
    names = environment_server_agent_names(block)
    return names[0] if len(names) == 1 else None


def environment_servers_by_agent(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """For every agent that an environment server names: those servers, in config order."""
    servers: dict[str, list[str]] = {}
    for name, _, block in implementation_blocks(config, ENVIRONMENT_SERVERS):
        for agent in environment_server_agent_names(block):
            servers.setdefault(agent, []).append(name)
    return servers


def retarget(config: dict[str, Any], renames: Mapping[str, str]) -> None:
    """Let environment servers name agents by their new names."""
    for _, reference in _agent_references(config):
        reference["name"] = renames.get(str(reference.get("name")), reference.get("name"))


def follow_heirs(config: dict[str, Any], heirs: Mapping[str, list[str]]) -> None:
    """Point environment servers at the agent that inherited the one they name.

    `heirs` gives, for each name that was inherited away, who took it over. Raises AmbiguousAgentRenameError when
    several agents did.
    """
    problems: list[ConfigError] = []
    for old, destinations in heirs.items():
        named = [(place, reference) for place, reference in _agent_references(config) if reference.get("name") == old]
        agents = [name for name in destinations if _defines_one_agent(config.get(name))]
        if not agents:
            continue
        if len(agents) > 1:
            problems += [_ambiguous(old, agents, place) for place, _ in named]
        for _, reference in named:
            reference["name"] = agents[0]
    raise_problems(problems)


def front_agents(config: dict[str, Any], resolved: Mapping[str, Any]) -> None:
    """Give every agent that no environment server names a relay of its own, after everything else.

    `resolved` is the same config with `${…}` resolved, to read from. Raises AgentWithoutEnvironmentServerError where
    the config forbids relays.
    """
    fronted = environment_servers_by_agent(resolved)
    bare = [(name, kind) for name, kind, _ in _runnable_agents(resolved) if name not in fronted]
    relays: dict[str, str] = {}
    for agent, kind in bare:
        relays[_relay_name({*config, *relays}, agent, kind)] = agent
    if relays and config.get(ERROR_ON_AGENT_WITHOUT_ENVIRONMENT_SERVER_KEY_NAME) is True:
        raise _unfronted(relays)
    config.update({relay: _relay(agent) for relay, agent in relays.items()})


def _agent_references(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, kind, block in implementation_blocks(config, ENVIRONMENT_SERVERS):
        for field, reference in environment_server_agent_refs(block).items():
            yield dotted((name, ENVIRONMENT_SERVERS, kind, field, "name")), reference


def _runnable_agents(config: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, kind, block in implementation_blocks(config, RESPONSES_API_AGENTS):
        resources = block.get("resources_server")
        unbound = isinstance(resources, dict) and resources.get("name") == MISSING
        if "entrypoint" in block and not unbound:
            yield name, kind, block


def _relay_name(taken: Collection[str], agent: str, kind: str) -> str:
    stem = agent_stem(agent, kind)
    names = [f"{stem}_environment_server"] if stem else []
    names.append(f"{agent}_environment_server")
    numbered = (f"{agent}_environment_server_{number}" for number in count(2))
    return next(name for name in chain(names, numbered) if name not in taken)


def _reference(agent: str) -> dict[str, str]:
    return {"type": RESPONSES_API_AGENTS, "name": agent}


def _relay(agent: str) -> dict[str, Any]:
    block = {"entrypoint": "app.py", AGENT_SERVER_FIELD: _reference(agent)}
    return {ENVIRONMENT_SERVERS: {LEGACY_AGENT: block}}


def _defines_one_agent(entry: object) -> bool:
    agents = entry.get(RESPONSES_API_AGENTS) if isinstance(entry, Mapping) else None
    return isinstance(agents, Mapping) and len(agents) == 1


def _ambiguous(old: str, destinations: list[str], place: str) -> ConfigError:
    return AmbiguousAgentRenameError(
        f"{place} names the agent `{old}`, which {enumeration([f'`{name}`' for name in destinations])} all inherit: "
        f"set it to the one that is meant."
    )


def _unfronted(relays: Mapping[str, str]) -> ConfigError:
    import yaml

    blocks = yaml.safe_dump({relay: _relay(agent) for relay, agent in relays.items()}, sort_keys=False)
    return AgentWithoutEnvironmentServerError(
        f"No environment server names {enumeration([f'`{agent}`' for agent in relays.values()])}, and "
        f"{ERROR_ON_AGENT_WITHOUT_ENVIRONMENT_SERVER_KEY_NAME} is set. Add to the config:\n{blocks.rstrip()}"
    )
