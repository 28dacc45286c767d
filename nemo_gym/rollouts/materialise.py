"""From input rows to planned rollouts: who runs each, how often, and under which indices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    ENVIRONMENT_SERVER_STAMP_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
)
from nemo_gym.config.notices import warn
from nemo_gym.rollouts.errors import RoutingError, RowError
from nemo_gym.rollouts.keys import TASK_ID_KEY, TASKSET_KEY
from nemo_gym.rollouts.numbering import RepeatCounters, TaskNumbers
from nemo_gym.rollouts.options import DEFAULT_AGENT_KEY, RolloutCollectionConfig, RoutingMode
from nemo_gym.rollouts.records import index_in
from nemo_gym.rollouts.rows import Row
from nemo_gym.schema.episodes import is_materialized_task_row

_LISTED = 20


@dataclass(frozen=True)
class PlanOptions:
    """How rows become rollouts."""

    agent_map: Mapping[str, str] = field(default_factory=dict)
    fan_out: Mapping[str, list[str]] = field(default_factory=dict)
    num_repeats: int | Mapping[str, int] = 1
    add_seed: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    skills_ref: Mapping[str, Any] | None = None
    routing_mode: RoutingMode = "agent"
    server_name: str | None = None
    server_routes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: RolloutCollectionConfig) -> PlanOptions:
        """Raises SkillsError when the skills of the run can't be read."""
        from nemo_gym.rollouts.skills import load_skill_directory

        return cls(
            agent_map=config.agent_map or {},
            fan_out=config.fan_out or {},
            num_repeats=config.num_repeats,
            add_seed=config.num_repeats_add_seed,
            overrides=config.responses_create_params,
            skills_ref=load_skill_directory(config.skills.path).model_dump() if config.skills else None,
            routing_mode=config.environment_routing_mode,
            server_name=config.environment_server_name,
            server_routes=config.environment_server_routes,
        )

    def routed_as(
        self, mode: RoutingMode | None, server_name: str | None, routes: Mapping[str, str] | None
    ) -> PlanOptions:
        """The same with the routing that a config asks for."""
        return replace(self, routing_mode=mode or "agent", server_name=server_name, server_routes=routes or {})


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row to be planned: equal `text`s are one task, `place` is where a person finds it."""

    place: str
    text: bytes
    fields: Row


class Planner:
    """Plans rows one after the other; what is wrong with several of them is told together by `finish`.

    `fallback_agent` gives the agent of rows that name neither an agent nor a task source; it may raise.
    """

    def __init__(self, options: PlanOptions, fallback_agent: Callable[[], str | None] | None = None) -> None:
        self._options = options
        self._fallback_agent = fallback_agent or (lambda: None)
        self._numbers = TaskNumbers()
        self._counters = RepeatCounters()
        self._without_agent: list[str] = []
        self._without_repeats: dict[str, None] = {}
        self._rerouted: dict[tuple[str, str], None] = {}
        self._used_repeat_keys: set[str] = set()

    def plan(self, source: SourceRow) -> Iterator[Row]:
        """The rollouts of one row, each a new dict; nested values are shared with the row.

        Raises RowError or RoutingError for what is wrong with this row alone.
        """
        row = dict(source.fields)
        server = self._environment_server(row, source.place)
        if is_materialized_task_row(row):
            self._refuse_flat_options(source.place)
        else:
            self._apply_flat_options(row, source.place)
        if server is not None:
            row[ENVIRONMENT_SERVER_STAMP_KEY_NAME] = server
            shares = [(agent_of(row), self._repeats([_stamped_key(row, server)]))]
        else:
            agents, basis = self._targets(row, source.place)
            shares = [(agent, self._repeats([agent, basis])) for agent in agents]
        _check_capture_id(row, source.place)
        task = index_in(row, TASK_INDEX_KEY_NAME)
        task = self._numbers.of(source.text) if task is None else task
        for agent, count in shares:
            for repeat in self._counters.take(task, count):
                yield self._rollout(row, agent, task, repeat, source.place)

    def finish(self) -> None:
        """Raise what was wrong with several rows; warn of routes and repeat counts that surprise."""
        if self._without_agent:
            raise RoutingError(
                f"Rows without an agent: {listed(self._without_agent)}. Name one for all by --agent, or give each row "
                f"`{AGENT_REF_KEY_NAME}` or `{TASK_SOURCE_KEY_NAME}`."
            )
        if self._without_repeats:
            raise RoutingError(
                f"num_repeats has no entry for {', '.join(self._without_repeats)}: add them, or `{DEFAULT_AGENT_KEY}`."
            )
        self._warn()

    def _warn(self) -> None:
        if self._rerouted:
            pairs = ", ".join(f"{old} → {new}" for old, new in self._rerouted)
            warn(f"agent_map replaced the agents rows name: {pairs}.")
        if isinstance(self._options.num_repeats, Mapping):
            unused = [
                k for k in self._options.num_repeats if k != DEFAULT_AGENT_KEY and k not in self._used_repeat_keys
            ]
            if unused:
                warn(f"num_repeats entries that fit no row: {', '.join(unused)}.")

    def _environment_server(self, row: Row, place: str) -> str | None:
        """The environment server that is fixed for a row; None when its agent decides."""
        options = self._options
        if is_materialized_task_row(row):
            taskset = row[TASK_ID_KEY].get(TASKSET_KEY)
            server = options.server_routes.get(taskset) if isinstance(taskset, str) and taskset else None
            if server is None:
                raise RoutingError(
                    f"{place}: environment_server_routes has no server for the task set {taskset!r}. With --no-serve "
                    "too they are this command's own, not those of the running servers: pass their --config again."
                )
            return server
        if options.routing_mode == "taskset":
            raise RoutingError(
                f"{place}: a row without `task_id` and `task_input` has no task set, which "
                "environment_routing_mode=taskset needs."
            )
        if options.routing_mode == "legacy":
            return options.server_name
        stamped = row.get(ENVIRONMENT_SERVER_STAMP_KEY_NAME)
        return stamped if isinstance(stamped, str) and stamped else None

    def _refuse_flat_options(self, place: str) -> None:
        given = {
            "responses_create_params": bool(self._options.overrides),
            "skills": self._options.skills_ref is not None,
            "num_repeats_add_seed": self._options.add_seed,
        }
        unsupported = [name for name, is_given in given.items() if is_given]
        if unsupported:
            raise RowError(f"{place} is a task of a task set, for which {', '.join(unsupported)} can't be set.")

    def _apply_flat_options(self, row: Row, place: str) -> None:
        params = row.get(RESPONSES_CREATE_PARAMS_KEY_NAME)
        if not isinstance(params, dict):
            is_missing = RESPONSES_CREATE_PARAMS_KEY_NAME not in row
            what = "has no" if is_missing else "has something that is not an object under"
            raise RowError(
                f"{place} {what} `{RESPONSES_CREATE_PARAMS_KEY_NAME}`: a row needs the model request there, or its "
                "`input` from --prompt-config."
            )
        row[RESPONSES_CREATE_PARAMS_KEY_NAME] = {**params, **self._options.overrides}
        if self._options.skills_ref is not None:
            row[SKILLS_REF_KEY_NAME] = self._options.skills_ref

    def _targets(self, row: Row, place: str) -> tuple[list[str | None], str | None]:
        """The agents of a flat row (None: the one its task source leads to), and the row's own routing key."""
        agent, source = agent_of(row), task_source_of(row)
        basis = agent or source
        routed = self._mapped_agent(agent, source)
        if routed is None and basis is None:
            routed = basis = self._fallback_agent()
        if routed is None and basis is None:
            self._without_agent.append(place)
            return [], None
        if routed is not None and agent is not None and routed != agent:
            self._rerouted[(agent, routed)] = None
        fanned = self._options.fan_out.get(basis) if basis is not None else None
        return list(fanned) if fanned else [routed or agent], basis

    def _mapped_agent(self, agent: str | None, source: str | None) -> str | None:
        names = (agent, source, DEFAULT_AGENT_KEY)
        return next((self._options.agent_map[n] for n in names if n is not None and n in self._options.agent_map), None)

    def _repeats(self, keys: list[str | None]) -> int:
        counts = self._options.num_repeats
        if isinstance(counts, int):
            return counts
        names = [name for name in keys if name is not None]
        self._used_repeat_keys.update(names)
        key = next((name for name in (*names, DEFAULT_AGENT_KEY) if name in counts), None)
        if key is None:
            self._without_repeats[names[0]] = None
            return 0
        return counts[key]

    def _rollout(self, row: Row, agent: str | None, task: int, repeat: int, place: str) -> Row:
        planned = dict(row)
        if agent is not None and agent != agent_of(row):
            planned[AGENT_REF_KEY_NAME] = {"name": agent}
        planned[TASK_INDEX_KEY_NAME] = task
        planned[ROLLOUT_INDEX_KEY_NAME] = repeat
        if self._options.add_seed:
            planned[RESPONSES_CREATE_PARAMS_KEY_NAME] = _seeded(row[RESPONSES_CREATE_PARAMS_KEY_NAME], repeat, place)
        return planned


def in_order(rows: Iterable[Row], *, interleave: bool) -> list[Row]:
    """Planned rows as they are dispatched: all repeats of a row together, or (interleaved) first repeats first."""
    return sorted(rows, key=lambda row: int(row[ROLLOUT_INDEX_KEY_NAME])) if interleave else list(rows)


def agent_of(row: Mapping[str, Any]) -> str | None:
    """The agent a row names itself."""
    reference = row.get(AGENT_REF_KEY_NAME)
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return name if isinstance(name, str) and name else None


def task_source_of(row: Mapping[str, Any]) -> str | None:
    source = row.get(TASK_SOURCE_KEY_NAME)
    return source if isinstance(source, str) and source else None


def _stamped_key(row: Row, server: str) -> str:
    if is_materialized_task_row(row):
        return str(row[TASK_ID_KEY][TASKSET_KEY])
    return task_source_of(row) or server


def _seeded(params: Mapping[str, Any], seed: int, place: str) -> dict[str, Any]:
    metadata = dict(params.get("metadata") or {})
    try:
        extra_body = dict(json.loads(metadata.get("extra_body") or "{}"))
    except (TypeError, ValueError) as error:
        raise RowError(
            f"{place}: `responses_create_params.metadata.extra_body` must be a JSON object as text to take a seed."
        ) from error
    metadata["extra_body"] = json.dumps({**extra_body, "seed": seed})
    return {**params, "metadata": metadata}


def _check_capture_id(row: Row, place: str) -> None:
    if row.get(ROLLOUT_ID_KEY_NAME) is None:
        return
    from nemo_gym.serve.correlation import maybe_rollout_id_from_run_body

    try:
        maybe_rollout_id_from_run_body({ROLLOUT_ID_KEY_NAME: row[ROLLOUT_ID_KEY_NAME]})
    except ValueError as error:
        raise RowError(f"{place}: {error}") from error


def listed(places: list[str]) -> str:
    """The first places where something is, and how many more there are."""
    shown = "; ".join(places[:_LISTED])
    return shown if len(places) <= _LISTED else f"{shown}; and {len(places) - _LISTED} more"
