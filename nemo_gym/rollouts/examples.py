"""Rows and results in memory, as trainers and drivers hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    ENVIRONMENT_ROUTING_MODE_KEY_NAME,
    ENVIRONMENT_SERVER_NAME_KEY_NAME,
    ENVIRONMENT_SERVER_ROUTES_KEY_NAME,
    ENVIRONMENT_SERVER_STAMP_KEY_NAME,
)
from nemo_gym.rollouts.aggregation import aggregate
from nemo_gym.rollouts.budget import Budget, DispatchLatencyTracker
from nemo_gym.rollouts.collect import Servers
from nemo_gym.rollouts.dispatch import Dispatcher, Result, failure_notice
from nemo_gym.rollouts.materialise import Planner, PlanOptions, SourceRow, in_order
from nemo_gym.rollouts.options import RolloutCollectionConfig
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.pinning import client_of_rows
from nemo_gym.rollouts.prompting import prompted_rows
from nemo_gym.rollouts.records import key_of
from nemo_gym.rollouts.routing import Router
from nemo_gym.rollouts.rows import Row
from nemo_gym.rollouts.topology import Topology


class PrintedFailures:
    """Prints every failed request on a line of its own, and keeps no books."""

    def dispatched(self, row: Row) -> None: ...

    def retried(self, row: Row, number: int, delay: float, failure: Result) -> None: ...

    def failed(self, row: Row, server: str, error: BaseException) -> None:
        print(failure_notice(row, server, error))


def dispatcher_for(
    examples: Sequence[Row],
    servers: Servers,
    *,
    server_name: str | None,
    admission: AbstractAsyncContextManager[Any] | None,
    failures_as_rows: bool,
    budget_seconds: float | None,
    margin_seconds: float | None,
    tracker: DispatchLatencyTracker | None,
) -> Dispatcher:
    """What runs these rows. Their agents are resolved in place and all they name is checked first: RoutingError."""
    router = Router(servers.global_config)
    for row in examples:
        if server_name is not None:
            row[ENVIRONMENT_SERVER_STAMP_KEY_NAME] = server_name
        router.settle(row)
    router.finish()
    tracker = tracker or DispatchLatencyTracker()
    return Dispatcher(
        client=servers.client,
        raise_for_status=servers.raise_for_status,
        server_of=router.server_of,
        admission=admission or nullcontext(),
        listener=PrintedFailures(),
        budget=Budget(budget_seconds, margin_seconds, tracker),
        tracker=tracker,
        failures_as_rows=failures_as_rows,
        client_of=client_of_rows(servers.client, servers.global_config),
    )


def planned_examples(examples: Iterable[Row], options: PlanOptions, config: Mapping[Any, Any] | None) -> list[Row]:
    """The rollouts of rows, equal rows being one task; with a config its routing applies and sources are resolved."""
    if config is not None:
        options = options.routed_as(
            config.get(ENVIRONMENT_ROUTING_MODE_KEY_NAME),
            config.get(ENVIRONMENT_SERVER_NAME_KEY_NAME),
            config.get(ENVIRONMENT_SERVER_ROUTES_KEY_NAME),
        )
    planner = Planner(options)
    rows = [planned for source in _as_sources(examples) for planned in planner.plan(source)]
    planner.finish()
    if config is not None:
        resolve_task_sources(rows, config)
    return rows


def planned_rows_of(config: RolloutCollectionConfig) -> list[Row]:
    """The rollouts of a config's input in dispatch order; rows that name only a task source keep it unresolved."""
    planner = Planner(PlanOptions.of(config))
    sources = prompted_rows({}, config.row_files, config.limit, config.prompt_config)
    rows = [planned for source in sources for planned in planner.plan(source)]
    planner.finish()
    return in_order(rows, interleave=config.interleave_repeats)


def resolve_task_sources(rows: Iterable[Row], config: Mapping[Any, Any]) -> None:
    """Give rows that name only a task source the agent it leads to, in place. Raises RoutingError for all at once."""
    router = Router(config)
    for row in rows:
        router.resolve_source(row)
    router.finish()


async def aggregate_results(results: list[Row], rows: list[Row], output: Path, servers: Servers) -> Path | None:
    """The metrics of results beside `output`; each result takes server and agent from its row where that names them."""
    records = [_with_identity(result, row) for result, row in zip(results, rows, strict=True)]
    ordered = sorted(records, key=lambda record: key_of(record) or (0, 0))
    return await aggregate(
        ordered,
        Topology(servers.global_config),
        servers.client,
        servers.raise_for_status,
        ResultSet(output).aggregate_metrics,
    )


def _with_identity(result: Row, row: Row) -> Row:
    names = (ENVIRONMENT_SERVER_STAMP_KEY_NAME, AGENT_REF_KEY_NAME)
    return {**result, **{name: row[name] for name in names if row.get(name)}}


def _as_sources(examples: Iterable[Row]) -> Iterable[SourceRow]:
    for index, row in enumerate(examples):
        yield SourceRow(f"row {index}", orjson.dumps(row, option=orjson.OPT_SORT_KEYS), row)
