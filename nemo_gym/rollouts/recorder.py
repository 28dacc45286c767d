"""What becomes of a result: its record on file, its outcome in the books, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable

from nemo_gym.config.keys import ATTEMPT_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.rollouts.coverage import BoundaryOf, Tally
from nemo_gym.rollouts.dispatch import CompletedRollout, Result, failure_notice
from nemo_gym.rollouts.failures import describe, failure_class_of
from nemo_gym.rollouts.indexing import index_fields
from nemo_gym.rollouts.journal import Books, Completion, Outcome
from nemo_gym.rollouts.keys import (
    NG_DISPATCH_DRAINED_KEY,
    NG_FAILURE_CAUSE_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_NO_PERSIST_KEY,
)
from nemo_gym.rollouts.options import RolloutCollectionConfig
from nemo_gym.rollouts.progress import CollectionProgress, NoticeLimit, NoticeRate
from nemo_gym.rollouts.records import index_in, record_line, reward_of, stamp
from nemo_gym.rollouts.rows import Row

_NOTICES = 10
_SECONDS_BETWEEN_RETRIES_TOLD = 30.0
"""Of one kind at one server; the journal lists them all."""

Enrich = Callable[[CompletedRollout], None]
"""Adds to a stamped result what was captured while it was made, in place."""


class Recorder:
    """Takes what comes of each row: on file, in the books, on the screen and, where asked, in memory."""

    def __init__(
        self,
        config: RolloutCollectionConfig,
        books: Books,
        progress: CollectionProgress,
        enrich: Enrich | None,
        tally: Tally,
        boundary_of: BoundaryOf,
    ) -> None:
        self.results: list[Result] = []
        self.drained = 0
        self._tally = tally
        self._boundary_of = boundary_of
        self._tries_again: dict[tuple[int | None, int | None], int] = {}
        self._retains = config.retain_results_in_memory
        self._aborts = not config.keeps_failures_as_rows
        self._books = books
        self._progress = progress
        self._enrich = enrich
        listed = f"Further failures are only counted; they are listed in {config.result_set.failures}."
        self._failures = NoticeLimit(_NOTICES, listed)
        self._retries = NoticeRate(_SECONDS_BETWEEN_RETRIES_TOLD)

    def prepare(self, completed: CompletedRollout) -> None:
        """Stamp a result and add what was captured while it was made, once; `take` does it otherwise."""
        if completed.is_prepared:
            return
        completed.is_prepared = True
        row = completed.sent or completed.row
        stamp(row, completed.result, completed.environment_server, completed.environment_server_type)
        if self._enrich is not None:
            self._enrich(completed)

    def take(self, completed: CompletedRollout) -> None:
        self.prepare(completed)
        result = completed.result
        completion = self._completion(completed)
        if completion.outcome == "measured" and self._is_repeated(completion):
            return
        keeps_record = completion.outcome in ("measured", "failed")
        self._books.record(completion, record_line(result) if keeps_record else None)
        self._count(completion)
        if self._retains:
            self.results.append(result)
        self._show(completion, result)

    def _completion(self, completed: CompletedRollout) -> Completion:
        result = completed.result
        task, repeat, attempt = _indices(completed.row)
        failure_class = failure_class_of(result)
        outcome = _outcome(result, failure_class)
        milliseconds = completed.rollout_latency_ms
        return Completion(
            task,
            repeat,
            attempt,
            outcome,
            failure_class,
            reward_of(result),
            None if milliseconds is None else round(milliseconds / 1000, 4),
            boundary=self._boundary_of(result) if outcome == "failed" else None,
            retries=self._tries_again.pop((task, repeat), 0),
            index=index_fields(result) if outcome in ("measured", "failed") else {},
        )

    def _is_repeated(self, completion: Completion) -> bool:
        """Whether the rollout is measured already; then its second result is only noted."""
        key = _key(completion)
        if key is None or key not in self._tally.measured:
            return False
        self._books.repeated(completion)
        self._progress.notice(f"Rollout {key[0]}-{key[1]} is measured already: a second result of it is not kept.")
        return True

    def _count(self, completion: Completion) -> None:
        key = _key(completion)
        if key is not None and completion.outcome == "measured":
            self._tally.measure(key)
            self._tally.retried.add(completion.reward, tries=1 + completion.attempt + completion.retries)
        elif key is not None and completion.outcome == "failed":
            self._tally.fail(key, (completion.boundary or "environment", completion.failure_class or "unknown"))

    def say(self, text: str) -> None:
        """Tell the person at the terminal something about the run as a whole."""
        self._progress.notice(text)

    def show(self, what: Callable[[], str]) -> None:
        """Have the progress line end with what this returns."""
        self._progress.show(what)

    def dispatched(self, row: Row) -> None:
        task, repeat, attempt = _indices(row)
        self._books.attempt(task, repeat, attempt)
        if task is not None and repeat is not None:
            self._tally.start((task, repeat))

    def retried(self, row: Row, number: int, delay: float, failure: Result) -> None:
        task, repeat, _ = _indices(row)
        self._books.retry(task, repeat, number, failure)
        self._tries_again[task, repeat] = number
        self._progress.counted("retried")
        why = f"{failure[NG_FAILURE_CLASS_KEY]}: {describe(failure)}"
        cause = failure.get(NG_FAILURE_CAUSE_KEY) or {}
        kind = (failure[NG_FAILURE_CLASS_KEY], cause.get("server"))
        text = f"Retry {number} of rollout {task}-{repeat} in {delay:.1f} s ({why})"
        self._progress.notice(self._retries(kind, text))

    def failed(self, row: Row, server: str, error: BaseException) -> None:
        if self._aborts:
            self._progress.notice(failure_notice(row, server, error))

    def _show(self, completion: Completion, result: Result) -> None:
        if completion.outcome == "drained":
            self.drained += 1
            self._progress.counted("not started")
            return
        if completion.outcome != "measured":
            self._progress.counted("failed")
            where = f"{completion.task}-{completion.repeat}"
            self._progress.notice(
                self._failures(
                    f"Rollout {where} dropped from the score: class={completion.failure_class} error={describe(result)}"
                )
            )
        self._progress.advanced()


def _outcome(result: Result, failure_class: str | None) -> Outcome:
    if result.get(NG_NO_PERSIST_KEY):
        return "drained" if result.get(NG_DISPATCH_DRAINED_KEY) else "dropped"
    return "measured" if failure_class is None else "failed"


def _key(completion: Completion) -> tuple[int, int] | None:
    task, repeat = completion.task, completion.repeat
    return None if task is None or repeat is None else (task, repeat)


def _indices(row: Row) -> tuple[int | None, int | None, int]:
    attempt = index_in(row, ATTEMPT_INDEX_KEY_NAME) or 0
    return index_in(row, TASK_INDEX_KEY_NAME), index_in(row, ROLLOUT_INDEX_KEY_NAME), attempt
