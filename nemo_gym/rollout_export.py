"""Telling experiment trackers of a collection: while it runs, and when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from nemo_gym.exporters import get_exporters, setup_exporters, teardown_exporters

if TYPE_CHECKING:
    from nemo_gym.exporters.progress import Completed
    from nemo_gym.rollouts.dispatch import CompletedRollout
    from nemo_gym.rollouts.options import RolloutCollectionConfig
    from nemo_gym.rollouts.recorder import Enrich


@contextmanager
def exporters_of(global_config: Mapping[Any, Any]) -> Iterator[None]:
    """The trackers that a config names, open inside."""
    setup_exporters(global_config)
    try:
        yield
    finally:
        teardown_exporters()


@asynccontextmanager
async def exported(
    config: RolloutCollectionConfig, servers: Mapping[Any, Any], enrich: Enrich
) -> AsyncIterator[Enrich]:
    """What to do with each result, so that the trackers that are open hear of it; at the end they get everything else.

    `servers` is the config of the servers behind the collection. A run that was stopped sends no records.
    """
    if not get_exporters():
        yield enrich
        return
    from nemo_gym.exporters.progress import ProgressExport
    from nemo_gym.rollouts.errors import IncompleteRunError

    results = config.result_set

    def enriched(completed: CompletedRollout) -> None:
        enrich(completed)
        progress.completed(_report(completed))

    with ProgressExport(results.materialized, results.output) as progress:
        try:
            yield enriched
        except IncompleteRunError:
            await asyncio.to_thread(_send, config, servers)
            raise
    await asyncio.to_thread(_send, config, servers)


def _report(completed: CompletedRollout) -> Completed:
    from nemo_gym.exporters.progress import Completed, key_in, measured
    from nemo_gym.rollouts.failures import failure_class_of
    from nemo_gym.rollouts.keys import NG_NO_PERSIST_KEY
    from nemo_gym.rollouts.materialise import agent_of

    result, row = completed.result, completed.sent or completed.row
    if result.get(NG_NO_PERSIST_KEY):
        return Completed(agent_of(row), "omitted", key_in(row))
    if failure_class_of(result) is not None:
        return Completed(agent_of(row), "failed", key_in(row))
    return measured(result)


def _send(config: RolloutCollectionConfig, servers: Mapping[Any, Any]) -> None:
    """Records, metrics and coverage of a collection that has ended."""
    from nemo_gym.config.secrets import Redactor
    from nemo_gym.exporters.results import send_coverage, send_metrics, send_rollouts
    from nemo_gym.rollouts.aggregation import server_of_record
    from nemo_gym.rollouts.scoring import ScoredRecords, ZeroOptions
    from nemo_gym.rollouts.topology import Topology

    results = config.result_set
    if config.upload_rollouts:
        send_rollouts(results.output, results.failures, Redactor.from_config(servers))
    if not config.disable_aggregation:
        send_metrics(results.aggregate_metrics)
    zeros = ZeroOptions(
        frozenset(config.count_failure_classes_as_zero),
        config.count_missing_rollouts_as_zero and not config.disable_aggregation,
    )
    coverage = ScoredRecords([results], zeros, partial(server_of_record, topology=Topology(servers))).coverage
    counts_zeros = zeros.missing or bool(zeros.failure_classes)
    send_coverage(
        expected=coverage.expected, scored=coverage.scored, imputed=coverage.imputed if counts_zeros else None
    )
