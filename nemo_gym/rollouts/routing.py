"""Whether the servers a plan needs are there, and which of them runs each row."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    ALLOW_UNSUPPORTED_PAIRING_KEY_NAME,
    ENVIRONMENT_SERVER_STAMP_KEY_NAME,
    ENVIRONMENT_SERVERS,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
)
from nemo_gym.config.routing import dataset_agent_pins, resolve_dataset_agent
from nemo_gym.rollouts.errors import RoutingError
from nemo_gym.rollouts.materialise import agent_of, task_source_of
from nemo_gym.rollouts.rows import Row
from nemo_gym.rollouts.topology import Topology
from nemo_gym.schema.episodes import is_materialized_task_row

ALLOW_UNSUPPORTED_PAIRING_ENV = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"

Problems = dict[str, None]
"""Messages, each once, in the order they were found."""


class Router:
    """Completes rows with the agent that runs them and checks that all they name exists.

    `settle` collects what is wrong, so that `finish` can tell everything before anything is dispatched.
    """

    def __init__(self, config: Mapping[Any, Any]) -> None:
        self._config = config
        self.topology = Topology(config)
        self._source_agents: dict[str, str | None] = {}
        self._checked: set[tuple[str | None, str | None, str | None]] = set()
        self._servers: dict[str, tuple[str, str | None]] = {}
        self._problems: dict[str, Problems] = {}
        self._with_agent_only = 0
        self._resolved_some = False

    def settle(self, row: Row) -> None:
        """Give the row its agent, where it can have one, and check what it names."""
        self.resolve_source(row)
        self._attribute(row)
        agent, source = agent_of(row), task_source_of(row)
        names = (_stamp_of(row), agent, source)
        if names not in self._checked:
            self._checked.add(names)
            self._check(*names)

    def settled(self, rows: Iterable[Row]) -> Iterable[Row]:
        """The rows, each settled; ends with `finish`."""
        for row in rows:
            self.settle(row)
            yield row
        self.finish()

    def finish(self) -> None:
        """Raise everything that was wrong, the most basic kind first."""
        if self._resolved_some and self._with_agent_only:
            warnings.warn(
                f"{self._with_agent_only} rows name an agent and no task_source: collate them again",
                DeprecationWarning,
                stacklevel=2,
            )
        for kind in ("sources", "servers", "agents", "pairings"):
            if problems := self._problems.get(kind):
                raise RoutingError(" ".join(_sentence(problem) for problem in problems))
        for error in self._unfronted():
            raise error

    def server_of(self, row: Mapping[str, Any]) -> tuple[str, str | None]:
        """The environment server that runs a row, and its implementation."""
        stamp = _stamp_of(row)
        if stamp is not None:
            return stamp, self.topology.implementation(stamp)
        agent = agent_of(row)
        if agent is None:
            raise RoutingError("A row names neither an environment server nor an agent: give it `agent_ref`.")
        if agent not in self._servers:
            server = self.topology.environment_server_of(agent)
            self._servers[agent] = (server, self.topology.implementation(server))
        return self._servers[agent]

    def resolve_source(self, row: Row) -> None:
        """Give a row that names only a task source the agent it leads to."""
        source = task_source_of(row)
        if agent_of(row) is not None:
            self._with_agent_only += source is None
            return
        if source is None or _stamp_of(row) is not None or is_materialized_task_row(row):
            return
        if source not in self._source_agents:
            self._source_agents[source] = self._collect("sources", lambda: agent_for_source(self._config, source))
        agent = self._source_agents[source]
        if agent is not None:
            row[AGENT_REF_KEY_NAME] = {"name": agent}
            self._resolved_some = True

    def _attribute(self, row: Row) -> None:
        stamp = _stamp_of(row)
        if stamp is None or agent_of(row) is not None or is_materialized_task_row(row):
            return
        server = self.topology.get(stamp)
        if server is not None and server.attributed_agent is not None:
            row[AGENT_REF_KEY_NAME] = {"name": server.attributed_agent}

    def _check(self, stamp: str | None, agent: str | None, source: str | None) -> None:
        if stamp is not None:
            self._check_server(stamp, agent, source)
        if agent is None:
            return
        if (problem := self.topology.unknown_agent(agent)) is not None:
            self._note("agents", problem)
            return
        for verifier in dict.fromkeys((source, _bound_server(self.topology, agent))):
            self._check_pairing(agent, verifier)

    def _check_server(self, stamp: str, agent: str | None, source: str | None) -> None:
        server = self.topology.get(stamp)
        if server is None or server.server_type != ENVIRONMENT_SERVERS:
            names = [known.name for known in self.topology.of_type(ENVIRONMENT_SERVERS)]
            hint = did_you_mean(stamp, names)
            self._note(
                "servers", f"there is no environment server `{stamp}`.{hint} Known: {', '.join(names) or 'none'}."
            )
            return
        if agent is not None and agent not in server.agents:
            self._note("servers", f"the environment server `{stamp}` has no agent `{agent}`.")
        bound = server.resources_server
        if source is not None and bound is not None and source != bound:
            self._note("servers", f"rows of `{source}` can't run on `{stamp}`, which is bound to `{bound}`.")

    def _check_pairing(self, agent: str, verifier: str | None) -> None:
        server = self.topology.get(verifier) if verifier is not None else None
        if server is None or server.server_type != RESOURCES_SERVERS or self._allows_any_pairing:
            return
        allowed = server.block.get("allowed_agents")
        kind = self.topology.implementation(agent)
        if isinstance(allowed, list) and allowed and kind not in allowed:
            self._note(
                "pairings",
                f"the agent `{agent}` is a {kind}, which `{verifier}` does not support (it lists "
                f"{', '.join(map(str, allowed))}); --allow-unsupported-pairing runs it all the same.",
            )

    @property
    def _allows_any_pairing(self) -> bool:
        from_environment = os.environ.get(ALLOW_UNSUPPORTED_PAIRING_ENV, "").lower() not in ("", "0", "false")
        return from_environment or bool(self._config.get(ALLOW_UNSUPPORTED_PAIRING_KEY_NAME))

    def _unfronted(self) -> Iterable[ConfigError]:
        for agent in dict.fromkeys(agent for stamp, agent, _ in self._checked if stamp is None and agent is not None):
            try:
                self.topology.environment_server_of(agent)
            except ConfigError as error:
                yield error

    def _collect(self, kind: str, resolve: Callable[[], str | None]) -> str | None:
        try:
            return resolve()
        except ConfigError as error:
            self._note(kind, str(error))
            return None

    def _note(self, kind: str, problem: str) -> None:
        self._problems.setdefault(kind, {})[problem] = None


def agent_for_source(config: Mapping[Any, Any], source: str) -> str:
    """The agent that runs the rows of a data set declared by `source`.

    Raises ConfigError when there is no such instance, it can have no data sets, its data sets pin different agents, or
    no single agent follows from the config.
    """
    topology = Topology(config)
    server = topology.get(source)
    if server is None:
        candidates = [
            known.name for kind in (RESOURCES_SERVERS, RESPONSES_API_AGENTS) for known in topology.of_type(kind)
        ]
        what = "is not a server" if source in config else "is not in the config"
        raise RoutingError(f"task_source `{source}` {what}.{did_you_mean(source, candidates)}")
    if server.server_type not in (RESOURCES_SERVERS, RESPONSES_API_AGENTS):
        raise RoutingError(f"task_source `{source}` is one of the {server.server_type}: no rows belong to it.")
    pins = dataset_agent_pins(config, source)
    if len(pins) > 1:
        raise RoutingError(f"The data sets of `{source}` pin different agents ({', '.join(pins)}): use --agent.")
    agent = resolve_dataset_agent(config, source, pins[0] if pins else None)
    assert agent is not None, "only a task set may leave the agent open"
    return agent


def _bound_server(topology: Topology, agent: str) -> str | None:
    server = topology.get(agent)
    return server.resources_server if server is not None else None


def _stamp_of(row: Mapping[str, Any]) -> str | None:
    stamp = row.get(ENVIRONMENT_SERVER_STAMP_KEY_NAME)
    return stamp if isinstance(stamp, str) and stamp else None


def _sentence(problem: str) -> str:
    return problem[0].upper() + problem[1:]
