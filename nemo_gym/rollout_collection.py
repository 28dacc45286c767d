"""Collecting rollouts: the configuration of a run, and the helper that commands and trainers run it with."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from nemo_gym.config.environment_servers import environment_servers_by_agent as _by_agent
from nemo_gym.config.keys import HEAD_SERVER_KEY_NAME, TELEMETRY_KEY_NAME
from nemo_gym.path_utils import failures_path_for as _failures_path_for
from nemo_gym.rollouts.budget import DispatchLatencyTracker
from nemo_gym.rollouts.completion import CompletionIterator as _BoundedCompletionIterator
from nemo_gym.rollouts.dispatch import CompletedRollout as _CompletedRollout
from nemo_gym.rollouts.dispatch import request_summary as _rollout_request_debug_summary
from nemo_gym.rollouts.failures import (
    AGENT_REQUEST_FAILED_FAILURE_CLASS,
    AGENT_RUN_ERROR_FAILURE_CLASS,
    ENVIRONMENT_SERVER_FAILURE_CLASS,
    is_terminal_failure,
)
from nemo_gym.rollouts.keys import (
    MASK_SAMPLE_KEY,
    NG_DISPATCH_DRAINED_KEY,
    NG_ELAPSED_KEY,
    NG_ENVIRONMENT_SERVER_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_NO_PERSIST_KEY,
    NG_PERF_KEY,
    NG_RESULT_TYPE_KEY,
    NG_TASK_ID_KEY,
    NG_TERMINAL_KEY,
    NG_TRAJECTORY_KEY,
)
from nemo_gym.rollouts.migration import migrate_invalid_judge_main_rows
from nemo_gym.rollouts.options import (
    E2ERolloutCollectionConfig,
    EvalRunConfig,
    RolloutAggregationConfig,
    RolloutCollectionConfig,
    SharedRolloutCollectionConfig,
)
from nemo_gym.rollouts.records import episode_record as _episode_record
from nemo_gym.rollouts.records import observed_elapsed
from nemo_gym.rollouts.records import trajectory_identity as _trajectory_identity
from nemo_gym.rollouts.resume import get_max_rollout_attempts
from nemo_gym.rollouts.rows import Row, loads_jsonl_line
from nemo_gym.rollouts.topology import environment_server_for_agent as _environment_server_for_agent

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.rollouts.collect import Servers
    from nemo_gym.rollouts.dispatch import Dispatcher
    from nemo_gym.rollouts.materialise import SourceRow
    from nemo_gym.schema.trajectories import TrajectoryRecord
    from nemo_gym.server_utils import ServerClient

__all__ = [
    "AGENT_REQUEST_FAILED_FAILURE_CLASS",
    "AGENT_RUN_ERROR_FAILURE_CLASS",
    "ENVIRONMENT_SERVER_FAILURE_CLASS",
    "MASK_SAMPLE_KEY",
    "NG_DISPATCH_DRAINED_KEY",
    "NG_ELAPSED_KEY",
    "NG_ENVIRONMENT_SERVER_KEY",
    "NG_FAILURE_CLASS_KEY",
    "NG_NO_PERSIST_KEY",
    "NG_PERF_KEY",
    "NG_RESULT_TYPE_KEY",
    "NG_TASK_ID_KEY",
    "NG_TERMINAL_KEY",
    "NG_TRAJECTORY_KEY",
    "DispatchLatencyTracker",
    "E2ERolloutCollectionConfig",
    "EvalRunConfig",
    "RolloutAggregationConfig",
    "RolloutAggregationHelper",
    "RolloutCollectionConfig",
    "RolloutCollectionHelper",
    "SharedRolloutCollectionConfig",
    "_BoundedCompletionIterator",
    "_CompletedRollout",
    "_attach_ng_perf",
    "_attach_trajectory_record",
    "_build_trajectory_record",
    "_environment_server_for_agent",
    "_environment_servers_by_agent",
    "_episode_record",
    "_failures_path_for",
    "_get_max_rollout_attempts",
    "_read_jsonl",
    "_rollout_request_debug_summary",
    "_trajectory_identity",
    "collect_from_running_servers",
    "get_max_rollout_attempts",
    "is_terminal_failure",
    "loads_jsonl_line",
    "migrate_invalid_judge_main_rows",
    "observed_elapsed",
    "prepare_collection",
    "run_collection",
]

_get_max_rollout_attempts = get_max_rollout_attempts


def get_global_config_dict() -> DictConfig:
    """The config of this process; replaced by tests, or its module is."""
    from nemo_gym.global_config import get_global_config_dict as current_config

    return current_config()


def setup_server_client_utils(head_server_config: BaseServerConfig | None = None) -> ServerClient:
    """A client for the running servers; replaced by tests."""
    from nemo_gym import server_utils

    return server_utils.setup_server_client(head_server_config)


class RolloutCollectionHelper(BaseModel):
    """Runs rows against the servers that are up."""

    async def run_from_config(self, config: RolloutCollectionConfig) -> list[dict[str, Any]]:
        """Collect and score a whole file of rows.

        Returns every result in (task, repeat) order when the config retains them, else nothing. Raises RowError or
        RoutingError before anything is dispatched, NothingMeasuredError when no rollout was scored.
        """
        from nemo_gym.telemetry import managed_span

        with managed_span("job", "gym.job"):
            return await self._run_from_config(config)

    def run_examples(
        self,
        examples: list[dict[str, Any]],
        head_server_config: BaseServerConfig | None = None,
        semaphore: AbstractAsyncContextManager[Any] | None = None,
        route_failures_to_sidecar: bool = False,
        environment_server_name: str | None = None,
        *,
        max_resident_tasks: int | None = None,
        dispatch_budget_s: float | None = None,
        drain_margin_s: float | None = None,
        latency_tracker: DispatchLatencyTracker | None = None,
    ) -> _BoundedCompletionIterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Awaitables in completion order, each of a row and what `/run` answered for it.

        The rows are the caller's own dicts; their agents are resolved, and all they name is checked, before this
        returns. A request that fails raises from its awaitable (with `.status` and `.response_content` when a server
        answered), or becomes a failure row with `route_failures_to_sidecar`.
        """
        dispatcher = self._dispatcher(
            examples,
            head_server_config,
            semaphore,
            route_failures_to_sidecar,
            environment_server_name,
            (dispatch_budget_s, drain_margin_s, latency_tracker),
        )
        return _BoundedCompletionIterator(
            (_row_and_result(dispatcher, row) for row in examples),
            max_resident_tasks=max_resident_tasks,
            total=len(examples),
        )

    def preprocess_examples(
        self,
        examples: list[dict[str, Any]],
        *,
        agent_map: dict[str, str] | None = None,
        fan_out: dict[str, list[str]] | None = None,
        num_repeats: int | dict[str, int] = 1,
        num_repeats_add_seed: bool = False,
        global_config_dict: DictConfig | None = None,
    ) -> list[dict[str, Any]]:
        """The rollouts of rows: new dicts with indices and agents; rows that are equal are one task.

        With `global_config_dict` task sources are resolved to agents, and its routing keys apply.
        """
        from nemo_gym.rollouts.examples import planned_examples
        from nemo_gym.rollouts.materialise import PlanOptions

        options = PlanOptions(
            agent_map=agent_map or {}, fan_out=fan_out or {}, num_repeats=num_repeats, add_seed=num_repeats_add_seed
        )
        return planned_examples(examples, options, global_config_dict)

    @staticmethod
    def resolve_task_sources(examples: list[dict[str, Any]], global_config_dict: DictConfig) -> None:
        """Give rows that name only a task source the agent it leads to, in place. Raises RoutingError."""
        from nemo_gym.rollouts.examples import resolve_task_sources

        resolve_task_sources(examples, global_config_dict)

    def setup_server_client(self, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """A client for the servers behind the head server, or of the run this process belongs to."""
        return setup_server_client_utils(head_server_config)

    async def _run_from_config(self, config: RolloutCollectionConfig) -> list[dict[str, Any]]:
        from nemo_gym.rollout_export import exported
        from nemo_gym.rollouts.announcement import announced
        from nemo_gym.rollouts.collect import Collection
        from nemo_gym.rollouts.enrichment import Enrichment
        from nemo_gym.rollouts.prompting import prompted_rows
        from nemo_gym.rollouts.sources import FallbackAgent

        servers = _servers(self.setup_server_client())

        def rows() -> Iterable[SourceRow]:
            return prompted_rows(servers.global_config, config.row_files, config.limit, config.prompt_config)

        fallback = FallbackAgent(servers.global_config, lambda: config.row_files)
        evidence = Enrichment(servers.global_config)
        async with exported(config, servers.global_config, evidence) as enrich:
            collection = Collection(config, servers, rows, fallback, enrich, before_dispatch=evidence.forget_earlier)
            with announced(servers.global_config):
                return await collection.run()

    def _run_examples_with_metadata(
        self,
        examples: list[dict[str, Any]],
        head_server_config: BaseServerConfig | None = None,
        semaphore: AbstractAsyncContextManager[Any] | None = None,
        route_failures_to_sidecar: bool = False,
        environment_server_name: str | None = None,
        *,
        max_resident_tasks: int | None = None,
        dispatch_budget_s: float | None = None,
        drain_margin_s: float | None = None,
        latency_tracker: DispatchLatencyTracker | None = None,
    ) -> _BoundedCompletionIterator[_CompletedRollout]:
        dispatcher = self._dispatcher(
            examples,
            head_server_config,
            semaphore,
            route_failures_to_sidecar,
            environment_server_name,
            (dispatch_budget_s, drain_margin_s, latency_tracker),
        )
        return _BoundedCompletionIterator(
            (dispatcher.run(row) for row in examples), max_resident_tasks=max_resident_tasks, total=len(examples)
        )

    def _dispatcher(
        self,
        examples: list[dict[str, Any]],
        head_server_config: BaseServerConfig | None,
        semaphore: AbstractAsyncContextManager[Any] | None,
        failures_as_rows: bool,
        server_name: str | None,
        budget: tuple[float | None, float | None, DispatchLatencyTracker | None],
    ) -> Dispatcher:
        from nemo_gym.rollouts.examples import dispatcher_for

        seconds, margin, tracker = budget
        return dispatcher_for(
            examples,
            _servers(self.setup_server_client(head_server_config)),
            server_name=server_name,
            admission=semaphore,
            failures_as_rows=failures_as_rows,
            budget_seconds=seconds,
            margin_seconds=margin,
            tracker=tracker,
        )

    def _preprocess_rows_from_config(self, config: RolloutCollectionConfig) -> list[dict[str, Any]]:
        from nemo_gym.rollouts.examples import planned_rows_of

        return planned_rows_of(config)

    async def _call_aggregate_metrics(
        self, results: list[dict[str, Any]], rows: list[dict[str, Any]], output_fpath: Path
    ) -> Path | None:
        from nemo_gym.rollouts.examples import aggregate_results

        return await aggregate_results(results, rows, Path(output_fpath), _servers(self.setup_server_client()))


class RolloutAggregationHelper(BaseModel):
    """Scores result files of several runs together."""

    async def run_from_config(self, config: RolloutAggregationConfig) -> Path | None:
        """Merge the files and write their metrics; returns the metrics file, None when nothing was to be scored."""
        from nemo_gym.exporters.results import send_metrics
        from nemo_gym.rollouts.shards import aggregate_shards

        metrics = await aggregate_shards(config, _servers(setup_server_client_utils()))
        if metrics is not None:
            send_metrics(metrics)
        return metrics


def prepare_collection(config: EvalRunConfig, global_config_dict: DictConfig) -> RolloutCollectionConfig:
    """The run with its rows and output chosen, checked and told, before any server is needed.

    Raises ConfigError for rows that aren't there or can't be read, OutputError for a place that can't be written.
    """
    from nemo_gym.rollouts.preparation import prepare

    return prepare(config, global_config_dict)


def run_collection(
    config: RolloutCollectionConfig,
    global_config_dict: DictConfig | None = None,
    *,
    argv: Sequence[str] | None = None,
    watch: Callable[[], None] | None = None,
) -> None:
    """Collect with a prepared config, or let its driver do so. `argv` is what was typed after `gym`, to be said again.

    Raises StoppedError (exit 130) after Ctrl-C and TerminatedError (75) after SIGTERM, once the books are closed.
    `watch` is called now and then from a thread: what it raises ends the collection likewise, as ServersLostError.
    """
    from nemo_gym.rollout_export import exporters_of
    from nemo_gym.rollouts.interruption import run_until_signal

    typed = sys.argv[1:] if argv is None else argv
    with exporters_of(_own_config(global_config_dict)):
        run_until_signal(_collection(config, global_config_dict), config.result_set, typed, watch)


def collect_from_running_servers(
    config: EvalRunConfig, *, argv: Sequence[str] | None = None
) -> RolloutCollectionConfig:
    """`gym eval run --no-serve`: wait for the servers behind the head server of the config, then collect.

    Returns the run as it was prepared. Raises ServersUnavailableError when they don't answer in time, else as
    `run_collection`.
    """
    from nemo_gym.rollouts.sources import existing_input
    from nemo_gym.rollouts.waiting import spinup_seconds, wait_for_head, wait_for_servers
    from nemo_gym.rollouts.watching import HeadWatch
    from nemo_gym.telemetry import configure_telemetry_env, init_telemetry

    if config.input_jsonl_fpath:
        existing_input(config.input_jsonl_fpath)
    own_config = get_global_config_dict()
    configure_telemetry_env(own_config.get(TELEMETRY_KEY_NAME))
    init_telemetry("rollout_collection", "rollout_collection")
    seconds = spinup_seconds(own_config)
    head = own_config[HEAD_SERVER_KEY_NAME]
    client = wait_for_head(setup_server_client_utils, int(head["port"]), seconds=seconds)
    prepared = prepare_collection(config, client.global_config_dict)
    wait_for_servers(_server_names(client.global_config_dict), client.poll_for_status, seconds=seconds)
    watch = HeadWatch(str(head["host"]), int(head["port"]))
    run_collection(prepared, client.global_config_dict, argv=argv, watch=watch)
    return prepared


def _collection(config: RolloutCollectionConfig, global_config_dict: DictConfig | None) -> Coroutine[Any, Any, Any]:
    if config.rollout_collection_driver is None:
        return RolloutCollectionHelper().run_from_config(config)
    from omegaconf import OmegaConf

    from nemo_gym.rollouts.driver import load_driver

    known = get_global_config_dict() if global_config_dict is None else global_config_dict
    resolved = OmegaConf.to_container(known, resolve=True)
    return _awaited(load_driver(config.rollout_collection_driver)(config, resolved))  # type: ignore[arg-type]


def _own_config(given: DictConfig | None) -> Mapping[Any, Any]:
    """The config that names the trackers: this process's own. That of servers run elsewhere may be masked."""
    from nemo_gym.global_config import maybe_get_global_config_dict

    own = maybe_get_global_config_dict()
    known: Mapping[Any, Any] | None = given if own is None else own
    return {} if known is None else known


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


async def _row_and_result(dispatcher: Dispatcher, row: Row) -> tuple[Row, Row]:
    completed = await dispatcher.run(row)
    return completed.row, completed.result


def _build_trajectory_record(row: dict[str, Any], result: dict[str, Any]) -> TrajectoryRecord:
    from nemo_gym.rollouts.trajectories import build_trajectory

    return build_trajectory(row, result)


def _attach_trajectory_record(row: dict[str, Any], result: dict[str, Any]) -> None:
    from nemo_gym.rollouts.trajectories import attach_trajectory

    attach_trajectory(row, result)


def _attach_ng_perf(
    result: dict[str, Any], *, observability_enabled: bool, rollout_latency_ms: float | None = None
) -> None:
    from nemo_gym.rollouts.perf import attach_perf

    attach_perf(result, observability_enabled=observability_enabled, rollout_latency_ms=rollout_latency_ms)


def _servers(client: ServerClient) -> Servers:
    from nemo_gym import server_utils
    from nemo_gym.rollouts.collect import Servers

    config = getattr(client, "global_config_dict", None)
    known = config if isinstance(config, Mapping) else get_global_config_dict()
    return Servers(client, known, server_utils.raise_for_status)


def _server_names(config: Mapping[Any, Any]) -> list[str]:
    from nemo_gym.config.instances import server_instances

    return [instance.name for instance in server_instances(config) if not instance.is_alias]


def _environment_servers_by_agent(global_config_dict: DictConfig) -> dict[str, list[str]]:
    from omegaconf import OmegaConf

    return _by_agent(OmegaConf.to_container(global_config_dict, resolve=False))  # type: ignore[arg-type]


def _read_jsonl(path: str | Path) -> list[Row]:
    from nemo_gym.rollouts.rows import read_rows

    return [row.fields for row in read_rows(Path(path))]


_MOVED = ("collect_rollouts", "aggregate_rollouts")


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is now nemo_gym.cli.eval.{name}", DeprecationWarning, stacklevel=2)
    from nemo_gym.cli import eval as commands

    return getattr(commands, name)
