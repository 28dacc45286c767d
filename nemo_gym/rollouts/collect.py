"""One collection from plan to score: dispatch what is left, keep the books, aggregate, report."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.notices import notify, warn
from nemo_gym.rollouts.admission import Admission
from nemo_gym.rollouts.aggregation import aggregate, server_of_record
from nemo_gym.rollouts.budget import Budget, DispatchLatencyTracker
from nemo_gym.rollouts.completion import CompletionIterator
from nemo_gym.rollouts.coverage import BoundaryOf, Tally, boundary_by
from nemo_gym.rollouts.dispatch import (
    IN_PLACE,
    Dispatcher,
    Result,
    Retries,
    RolloutClient,
)
from nemo_gym.rollouts.errors import LostResultsError, NothingMeasuredError, PlanError, RolloutError
from nemo_gym.rollouts.identity import Identity
from nemo_gym.rollouts.journal import DRAINED, Books
from nemo_gym.rollouts.long_stages import long_stage
from nemo_gym.rollouts.materialise import Planner, PlanOptions, SourceRow
from nemo_gym.rollouts.migration import migrate_invalid_judge_main_rows
from nemo_gym.rollouts.options import RolloutCollectionConfig
from nemo_gym.rollouts.pinning import client_of_rows
from nemo_gym.rollouts.plan import PlanFile, new_plan
from nemo_gym.rollouts.progress import CollectionProgress
from nemo_gym.rollouts.recorder import Enrich, Recorder
from nemo_gym.rollouts.records import key_of
from nemo_gym.rollouts.resume import (
    ResumeOptions,
    ResumeState,
    check_identity,
    earlier_identity,
    missing_for_resume,
    on_file,
    plan_digest,
    read_state,
    repairs,
    rows_left,
)
from nemo_gym.rollouts.routing import Router
from nemo_gym.rollouts.rows import Row, objects
from nemo_gym.rollouts.scoring import ScoredRecords, ZeroOptions
from nemo_gym.rollouts.summary import Summary
from nemo_gym.rollouts.token_delivery import token_delivery
from nemo_gym.rollouts.topology import Topology


@dataclass(frozen=True)
class Servers:
    """What a collection talks to: a client, the config of the servers behind it, and how a bad reply is raised."""

    client: RolloutClient
    global_config: Mapping[Any, Any]
    raise_for_status: Callable[[Any], Awaitable[None]]


@dataclass
class Work:
    """What a run has to do: the rows left of a plan; `earlier` results only where results are retained."""

    planned: int
    left: int
    rows: Iterable[Row]
    header: Mapping[str, Any]
    tally: Tally
    repairs: Iterable[Mapping[str, Any]] = ()
    resumed_anyway: list[str] = field(default_factory=list)
    earlier: list[Result] = field(default_factory=list)


@dataclass
class Collection:
    """Runs the rows of one result set.

    `rows` gives the input on a fresh run; `fallback_agent` the agent of rows that name none.
    """

    config: RolloutCollectionConfig
    servers: Servers
    rows: Callable[[], Iterable[SourceRow]]
    fallback_agent: Callable[[], str | None] | None = None
    enrich: Enrich | None = None
    retries: Retries = IN_PLACE
    before_dispatch: Callable[[Row], None] | None = None

    async def run(self) -> list[Result]:
        """Every result in (task, repeat) order when the config retains them, else nothing.

        Raises NothingMeasuredError when no rollout was scored, IncompleteRunError where completeness is required.
        Cancelling it closes the books in order and passes the cancellation on.
        """
        results = self.config.result_set
        with results.locked():
            work = self._resumed() or self._fresh()
            summary = Summary(results, work.tally.retried, work.resumed_anyway)
            try:
                collected = await self._collect(work)
                await self._score(collected.drained, work.tally, summary)
            except LostResultsError:
                summary.tell(on_file(results, work.tally.coverage(), self._boundary_of))
                raise
            finally:
                summary.tell(work.tally.coverage())
        return sorted([*work.earlier, *collected.results], key=lambda result: key_of(result) or (-1, -1))

    def _resumed(self) -> Work | None:
        config, results = self.config, self.config.result_set
        if not config.resume_from_cache:
            return None
        if missing := missing_for_resume(results):
            notify(f"Nothing to resume: {' and '.join(map(str, missing))} not there. Starting anew.")
            return None
        with long_stage():
            identity = Identity.of_run(config, self.servers.global_config)
            before = earlier_identity(results)
            found = check_identity(results, before, identity, anyway=config.resume_anyway)
            moved = migrate_invalid_judge_main_rows(results.output) if config.retry_invalid_judge_responses else 0
            state = self._state()
        print(state.summary())
        is_rewritten = moved > 0 or state.is_rewritten
        header = {"resumed": True, "planned": state.planned, "rewritten": is_rewritten, "resumed_anyway": found}
        return Work(
            state.planned,
            len(state.left),
            rows_left(results.materialized, state, self._resume_options),
            header | {"identity": (identity if before is None else identity.with_plan_of(before)).as_entry()},
            state.tally(),
            repairs(results, state),
            [*state.history.resumed_anyway, *found],
            list(objects(results.output)) if config.retain_results_in_memory else [],
        )

    @property
    def _resume_options(self) -> ResumeOptions:
        return ResumeOptions(self.config.retry_terminal_timeouts, self.config.dispatch_longest_first)

    def _state(self) -> ResumeState:
        read = partial(read_state, self.config.result_set, self._resume_options, self._boundary_of)
        try:
            return read()
        except PlanError:
            if not self._has_restored_plan():
                raise
            return read()

    def _has_restored_plan(self) -> bool:
        """Make a damaged plan anew, where input and options are still those it was made of."""
        results = self.config.result_set
        digest = plan_digest(results)
        try:
            with self._new_plan() as plan:
                if plan.digest != digest:
                    raise PlanError("It is another plan.")
        except (ConfigError, RolloutError):
            return False
        warn(f"{results.materialized} was damaged, and is made anew from the input: it is as it was.")
        return True

    def _new_plan(self) -> AbstractContextManager[PlanFile]:
        config = self.config
        planner = Planner(PlanOptions.of(config), self.fallback_agent)
        rows = Router(self.servers.global_config).settled(_planned(planner, self.rows()))
        return new_plan(config.result_set.materialized, rows, interleave=config.interleave_repeats)

    def _fresh(self) -> Work:
        config, results = self.config, self.config.result_set
        results.check_apart_from(file.path for file in config.row_files)
        with ExitStack() as stack:
            with long_stage():
                plan = stack.enter_context(self._new_plan())
            if results.has_results and not config.overwrite:
                moved = results.move_aside()
                notify(
                    f"{results.output} already held results: they are now {moved}. (--resume goes on with them, "
                    "--overwrite deletes them.)"
                )
            results.delete()
        with long_stage():
            identity = Identity.of_run(config, self.servers.global_config)
        header = {
            "resumed": False,
            "input": config.input_jsonl_fpath,
            "planned": plan.rollouts,
            "plan": plan.digest,
            "identity": identity.as_entry(),
        }
        return Work(plan.rollouts, plan.rollouts, objects(results.materialized), header, Tally(plan.rollouts))

    async def _collect(self, work: Work) -> Recorder:
        config, results = self.config, self.config.result_set
        tracker = DispatchLatencyTracker()
        async with Books(results.output, results.failures, results.journal) as books:
            books.opened({"run": uuid.uuid4().hex, **work.header})
            for entry in work.repairs:
                books.repaired(entry)
            with CollectionProgress(total=work.planned, done=work.planned - work.left) as progress:
                collected = Recorder(config, books, progress, self.enrich, work.tally, self._boundary_of)
                dispatcher = self._dispatcher(tracker, collected)
                dispatcher.in_flight.planned = work.left
                tokens = token_delivery(self.servers.global_config, books, collected.prepare)
                iterator = CompletionIterator(
                    (tokens.around(row, dispatcher.run) for row in self._announced(work.rows)),
                    max_resident_tasks=_residency(config),
                    total=work.left,
                )
                try:
                    async with tokens, progress.kept_fresh():
                        for awaitable in iterator:
                            completed = await awaitable
                            collected.take(completed)
                            tokens.recorded(completed)
                except BaseException as error:
                    books.closed(_state(error))
                    raise
                finally:
                    await iterator.aclose()
            books.closed(DRAINED if collected.drained else "done")
        if config.dispatch_budget_s is not None:
            notify(tracker.summary())
        return collected

    @cached_property
    def _boundary_of(self) -> BoundaryOf:
        return boundary_by(Topology(self.servers.global_config))

    def _announced(self, rows: Iterable[Row]) -> Iterable[Row]:
        """The rows, each made known when its turn has come."""
        for row in rows:
            if self.before_dispatch is not None:
                self.before_dispatch(row)
            yield row

    def _dispatcher(self, tracker: DispatchLatencyTracker, collected: Recorder) -> Dispatcher:
        config = self.config
        admission = Admission(config.num_samples_in_parallel, say=collected.say)
        collected.show(admission.shown)
        return Dispatcher(
            client=self.servers.client,
            raise_for_status=self.servers.raise_for_status,
            server_of=Router(self.servers.global_config).server_of,
            admission=admission,
            listener=collected,
            budget=Budget(config.dispatch_budget_s, config.drain_margin_s, tracker),
            tracker=tracker,
            failures_as_rows=config.keeps_failures_as_rows,
            retries=self.retries if config.keeps_failures_as_rows else Retries(),
            rollout_seconds=config.rollout_timeout_s,
            client_of=client_of_rows(self.servers.client, self.servers.global_config),
        )

    async def _score(self, drained: int, tally: Tally, summary: Summary) -> None:
        config, results = self.config, self.config.result_set
        zeros = ZeroOptions(
            frozenset(config.count_failure_classes_as_zero),
            config.count_missing_rollouts_as_zero and not config.disable_aggregation,
        )
        topology = Topology(self.servers.global_config)
        with long_stage():
            records = ScoredRecords([results], zeros, partial(server_of_record, topology=topology), self._boundary_of)
        coverage = records.coverage
        if records.duplicates.within:
            warn(f"{records.duplicates}. All of them are scored.")
        if coverage.expected and not coverage.scored:
            raise _nothing_measured(coverage.failures, drained, results.failures)
        metrics: Path | None = None
        if not config.disable_aggregation:
            metrics = await aggregate(
                records,
                topology,
                self.servers.client,
                self.servers.raise_for_status,
                results.aggregate_metrics,
            )
        print("Finished rollout collection! View results at:")
        print(f"Fully materialized inputs: {results.materialized}\nRollouts: {results.output}")
        if metrics is not None:
            print(f"Aggregate metrics: {metrics}")
        if (report := coverage.report()) is not None:
            print(report)
        books = records.books
        books.not_started = min(books.unknown, tally.coverage().not_started)
        summary.tell(books, duplicates=records.duplicates.within)
        config.check_completion(
            expected=coverage.expected,
            results=coverage.measured,
            next_step=lambda: read_state(results, self._resume_options).next_step(),
        )


def _planned(planner: Planner, sources: Iterable[SourceRow]) -> Iterable[Row]:
    for source in sources:
        yield from planner.plan(source)
    planner.finish()


def _residency(config: RolloutCollectionConfig) -> int | None:
    """Rows in memory at once: as asked, else twice what may be in flight, else all."""
    if config.max_resident_rollout_tasks is not None:
        return config.max_resident_rollout_tasks
    return None if config.num_samples_in_parallel is None else 2 * config.num_samples_in_parallel


def _state(error: BaseException) -> str:
    return "stopped" if isinstance(error, asyncio.CancelledError | KeyboardInterrupt) else type(error).__name__


def _nothing_measured(failures: Mapping[str, int], drained: int, path: Path) -> NothingMeasuredError:
    kinds = ", ".join(f"{name}: {count}" for name, count in sorted(failures.items()))
    reasons = [f"failed ({kinds}; see {path})"] if failures else []
    reasons += [f"{drained} not started before the dispatch budget was spent"] if drained else []
    return NothingMeasuredError(f"No rollout was measured: {' and '.join(reasons) or 'none left a result'}.")
