"""Swapping the harness: an agent config that names no resources server takes over the environment's agents."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym.config.aliases import agent_routes
from nemo_gym.config.entries import agent_stem, implementation_blocks, reference_name
from nemo_gym.config.environment_servers import retarget
from nemo_gym.config.errors import (
    AgentCompositionError,
    ConfigError,
    UnsupportedAgentOverrideError,
    UnsupportedAgentPairingError,
    raise_problems,
)
from nemo_gym.config.hints import did_you_mean, enumeration
from nemo_gym.config.keys import (
    AGENT_MAP_KEY_NAME,
    AGENT_NAME_KEY_NAME,
    ALLOW_UNSUPPORTED_PAIRING_KEY_NAME,
    FAN_OUT_KEY_NAME,
    MISSING,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
)
from nemo_gym.config.origins import Origins

ALLOW_UNSUPPORTED_PAIRING_ENV = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"
_CARRIED_BINDINGS = ("resources_server", "model_server")
_CARRIED = (*_CARRIED_BINDINGS, "datasets")


@dataclass(frozen=True)
class AgentInstance:
    """An agent of the config: its name, implementation and block."""

    name: str
    kind: str
    block: dict[str, Any]

    @property
    def resources_server(self) -> str | None:
        return reference_name(self.block, "resources_server")

    @property
    def is_unbound(self) -> bool:
        """Whether it waits for a resources server, as standalone agent configs do."""
        return self.resources_server == MISSING


@dataclass(frozen=True)
class Composition:
    """One unbound agent and the agents it takes over, with their names before and after."""

    source: AgentInstance
    targets: list[AgentInstance]

    @property
    def renames(self) -> dict[str, str]:
        return {target.name: self._new_name(target) for target in self.targets}

    def _new_name(self, target: AgentInstance) -> str:
        stem = agent_stem(target.name, target.kind)
        return f"{stem}_{self.source.kind}" if stem else self.source.kind


def planned_composition(config: Mapping[str, Any]) -> Composition | None:
    """What composition would do with a config; None when no agent is unbound.

    Raises AgentCompositionError when several are, or when there is nothing to take over.
    """
    agents = [AgentInstance(*found) for found in implementation_blocks(config, RESPONSES_API_AGENTS)]
    unbound = [agent for agent in agents if agent.is_unbound]
    if not unbound:
        return None
    if len(unbound) > 1:
        names = enumeration([f"`{agent.name}`" for agent in unbound])
        raise AgentCompositionError(f"{names} all wait for a resources server: give one agent config only.")
    targets = [agent for agent in agents if agent.resources_server is not None and not agent.is_unbound]
    if not targets:
        raise AgentCompositionError(
            f"The agent `{unbound[0].name}` names no resources server, and no other agent of the config does: "
            f"add an environment (--resources-server, --environment or --benchmark)."
        )
    return Composition(unbound[0], targets)


def compose_unbound_agent(
    config: dict[str, Any],
    held_overrides: Mapping[str, Any] | None = None,
    *,
    command_line: Mapping[str, Any] | None = None,
    origins: Origins | None = None,
) -> None:
    """Let an unbound agent take over every agent bound to a resources server, in place.

    `held_overrides` are the command line's words about the agents this creates: they are applied to the result, and
    may only change fields it has. `command_line` is all it set, to find words about agents that are no more.
    """
    plan = planned_composition(config)
    if plan is None:
        return
    misaddressed = _misaddressed(command_line or {}, config, plan)
    raise_problems([*_name_collisions(config, plan), *_unsupported_pairings(config, plan), *misaddressed])
    held = dict(held_overrides or {})
    problems: list[ConfigError] = []
    for target in plan.targets:
        block = _bound_to(plan.source, target)
        problems += _apply_held(block, held.pop(plan.renames[target.name], None), plan, target)
        config[target.name] = {
            key: {plan.source.kind: block} if key == RESPONSES_API_AGENTS else value
            for key, value in config[target.name].items()
        }
    raise_problems([*problems, *(_unapplied(name, plan) for name in held)])
    _rename(config, plan, origins)
    retarget(config, plan.renames)
    raise_problems(_outdated_routing(config, plan))
    _route_earlier_rows(config, plan.renames)


def held_agent_names(config: Mapping[str, Any]) -> set[str]:
    """Names of the agents composition is about to create."""
    plan = planned_composition(config)
    return set(plan.renames.values()) if plan else set()


def pairing_is_unchecked(config: Mapping[str, Any]) -> bool:
    """Whether the user took pairing into their own hands."""
    if config.get(ALLOW_UNSUPPORTED_PAIRING_KEY_NAME) is True:
        return True
    return os.environ.get(ALLOW_UNSUPPORTED_PAIRING_ENV, "").lower() not in ("", "0", "false")


def allowed_names(block: Mapping[str, Any], field: str, owner: str) -> list[str]:
    """A compatibility field of a resources server: a list of names, or one name; empty means any."""
    value = block.get(field)
    if value is None or value == "":
        return []
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    raise ConfigError(f"{field} of `{owner}` must be a list of names, not {value!r}.")


def _bound_to(source: AgentInstance, target: AgentInstance) -> dict[str, Any]:
    block = copy.deepcopy(source.block)
    block.pop("datasets", None)
    block.update({field: copy.deepcopy(target.block[field]) for field in _CARRIED if field in target.block})
    return block


def _name_collisions(config: Mapping[str, Any], plan: Composition) -> list[ConfigError]:
    vanishing = {plan.source.name, *plan.renames}
    new_names = list(plan.renames.values())
    return [
        AgentCompositionError(
            f"The agent `{old}` would become `{new}`, a name that is taken: rename one of them in its config."
        )
        for old, new in plan.renames.items()
        if new_names.count(new) > 1 or (new in config and new not in vanishing)
    ]


def _unsupported_pairings(config: Mapping[str, Any], plan: Composition) -> list[ConfigError]:
    if pairing_is_unchecked(config):
        return []
    resources = {name: block for name, _, block in implementation_blocks(config, RESOURCES_SERVERS)}
    allowed = {
        target.name: allowed_names(resources.get(target.resources_server or "", {}), "allowed_agents", target.name)
        for target in plan.targets
    }
    rejected = [name for name, kinds in allowed.items() if kinds and plan.source.kind not in kinds]
    if not rejected:
        return []
    supported = sorted(set.intersection(*(set(allowed[name]) for name in rejected)))
    advice = f"use one of: {', '.join(supported)}" if supported else "no agent suits all of them"
    return [
        UnsupportedAgentPairingError(
            f"{enumeration([f'`{name}`' for name in rejected])} can't be run by `{plan.source.kind}`: {advice}, "
            f"or pass --allow-unsupported-pairing."
        )
    ]


def _apply_held(block: dict[str, Any], override: Any, plan: Composition, target: AgentInstance) -> list[ConfigError]:
    if override is None:
        return []
    name = plan.renames[target.name]
    agents = override.get(RESPONSES_API_AGENTS) if isinstance(override, Mapping) else None
    fields = agents.get(plan.source.kind) if isinstance(agents, Mapping) else None
    if not isinstance(fields, Mapping) or len(agents or ()) != 1 or len(override) != 1:
        return [
            UnsupportedAgentOverrideError(
                f"The override of `{name}` doesn't fit: write "
                f"++{name}.{RESPONSES_API_AGENTS}.{plan.source.kind}.<field>=<value>."
            )
        ]
    return _update_known(block, fields, f"{name}.{RESPONSES_API_AGENTS}.{plan.source.kind}")


def _update_known(block: dict[str, Any], fields: Mapping[str, Any], place: str) -> list[ConfigError]:
    problems: list[ConfigError] = []
    for field, value in fields.items():
        if field not in block:
            hint = did_you_mean(str(field), map(str, block))
            problems.append(UnsupportedAgentOverrideError(f"{place} has no field `{field}` to override.{hint}"))
        elif isinstance(value, Mapping) and isinstance(block[field], dict):
            problems += _update_known(block[field], value, f"{place}.{field}")
        else:
            block[field] = value
    return problems


def _misaddressed(command_line: Mapping[str, Any], config: Mapping[str, Any], plan: Composition) -> list[ConfigError]:
    """Overrides of an agent under the name it is about to lose, or of an agent there never was."""
    created = set(plan.renames.values())
    problems: list[ConfigError] = []
    for name, kind, fields in implementation_blocks(command_line, RESPONSES_API_AGENTS):
        if name in created or name == plan.source.name:
            continue
        was_there = "entrypoint" in config[name][RESPONSES_API_AGENTS].get(kind, {})
        is_lost = name in plan.renames and not set(fields) <= set(_CARRIED)
        if is_lost or not was_there:
            problems.append(_unapplied(name, plan))
    return problems


def _unapplied(name: str, plan: Composition) -> ConfigError:
    created = enumeration([f"`{new}`" for new in plan.renames.values()])
    return UnsupportedAgentOverrideError(
        f"The command line overrides the agent `{name}`, but `{plan.source.kind}` made {created}."
    )


def _rename(config: dict[str, Any], plan: Composition, origins: Origins | None) -> None:
    renamed = {plan.renames.get(name, name): entry for name, entry in config.items() if name != plan.source.name}
    config.clear()
    config.update(renamed)
    if origins is not None:
        _rename_origins(origins, plan)


def _rename_origins(origins: Origins, plan: Composition) -> None:
    """The harness's fields come from where the harness did, the carried ones from where the agent did."""
    source = origins.subtree((plan.source.name, RESPONSES_API_AGENTS, plan.source.kind))
    origins.drop((plan.source.name,))
    for target in plan.targets:
        before = (target.name, RESPONSES_API_AGENTS, target.kind)
        carried = {field: origins.subtree((*before, field)) for field in _CARRIED if field in target.block}
        new = plan.renames[target.name]
        origins.rename(target.name, new)
        origins.drop((new, RESPONSES_API_AGENTS))
        for field, subtree in carried.items():
            origins.graft((new, RESPONSES_API_AGENTS, plan.source.kind, field), subtree)
        origins.graft((new, RESPONSES_API_AGENTS, plan.source.kind), source)


def _outdated_routing(config: Mapping[str, Any], plan: Composition) -> list[ConfigError]:
    vanished = {plan.source.name, *plan.renames} - set(config)
    named = [
        (place, agent)
        for key in (AGENT_NAME_KEY_NAME, AGENT_MAP_KEY_NAME, FAN_OUT_KEY_NAME)
        for place, agent in _agents_named(key, config.get(key))
        if agent in vanished
    ]
    return [
        AgentCompositionError(
            f"{place} names the agent `{agent}`, which `{plan.source.kind}` took over: "
            f"name {_successor(agent, plan)} instead."
        )
        for place, agent in named
    ]


def _successor(agent: str, plan: Composition) -> str:
    names = [plan.renames[agent]] if agent in plan.renames else list(plan.renames.values())
    return enumeration([f"`{name}`" for name in names])


def _agents_named(place: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _agents_named(f"{place}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _agents_named(place, item)


def _route_earlier_rows(config: dict[str, Any], renames: Mapping[str, str]) -> None:
    """Rows that name an agent by its name before the swap still find it; a route the user gave wins."""
    changed = {old: new for old, new in renames.items() if old != new}
    if changed:
        routes = agent_routes(config)
        config[AGENT_MAP_KEY_NAME] = {**changed, **routes}
