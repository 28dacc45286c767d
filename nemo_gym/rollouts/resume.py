"""Going on with a result set: what is done, what must not be tried again, and what is left."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nemo_gym.config.keys import ATTEMPT_INDEX_KEY_NAME
from nemo_gym.config.notices import notify, warn
from nemo_gym.rollouts.coverage import BoundaryOf, Coverage, Failure, Retried, Tally
from nemo_gym.rollouts.damage import set_damaged_aside
from nemo_gym.rollouts.errors import PlanError, ResumeRefusedError, RowError
from nemo_gym.rollouts.failures import failure_class_of, is_terminal_failure, rule_for
from nemo_gym.rollouts.identity import Identity, differences, listed
from nemo_gym.rollouts.indexing import index_fields
from nemo_gym.rollouts.journal import Completion, History, done_entry, journal_blocks, run_entries
from nemo_gym.rollouts.keys import REUSE_CACHED_DELIVERABLE_KEY
from nemo_gym.rollouts.keyset import RolloutKey, RolloutKeys
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.records import index_in, key_of, observed_elapsed, reward_of
from nemo_gym.rollouts.rows import Row, RowBlock, loads_jsonl_line, object_at, object_blocks, objects_at
from nemo_gym.rollouts.tail import repair_tail
from nemo_gym.rollouts.tiling import Tiling

MAX_ROLLOUT_ATTEMPTS_ENV = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
DEFAULT_MAX_ROLLOUT_ATTEMPTS = 3


@dataclass(frozen=True)
class ResumeOptions:
    """Which failures are tried again, and in which order."""

    retry_terminal_timeouts: bool = False
    longest_first: bool = False


@dataclass
class FailedRollout:
    """What the failures file says about one rollout."""

    attempts: int = 0
    is_terminal: bool = False
    failure: Failure = ("environment", "unknown")
    reuses_deliverable: bool = False
    seconds: float | None = None


@dataclass
class ResumeState:
    """The books of a result set, read back."""

    planned: int = 0
    left: array[int] = field(default_factory=lambda: array("Q"))
    """Where the rows still to be run begin in the plan, in its order."""
    measured: RolloutKeys = field(default_factory=RolloutKeys)
    failed: dict[RolloutKey, FailedRollout] = field(default_factory=dict)
    unknown: dict[RolloutKey, int] = field(default_factory=dict)
    max_attempts: int = DEFAULT_MAX_ROLLOUT_ATTEMPTS
    history: History = field(default_factory=History)
    unnoted: list[tuple[Path, int]] = field(default_factory=list)
    """Records that the journal doesn't know: their file, and where they begin in it."""
    is_rewritten: bool = False
    """Whether records lie elsewhere in their file now than the journal says."""

    def tally(self) -> Tally:
        """The books as they stand."""
        tally = Tally(self.planned)
        tally.measured, tally.retried = self.measured, self.history.retried
        for key, found in self.failed.items():
            tally.fail(key, found.failure)
        for key in self.unknown:
            tally.start(key)
        return tally

    def is_left(self, key: RolloutKey | None) -> bool:
        """Whether a planned rollout is to be dispatched."""
        if key is None:
            return True
        failed = self.failed.get(key)
        return key not in self.measured and not (
            failed and (failed.is_terminal or failed.attempts >= self.max_attempts)
        )

    def _unmeasured(self) -> tuple[dict[RolloutKey, FailedRollout], int, int]:
        """Failed rollouts without a measurement; how many not to be retried, and how many out of attempts."""
        unmeasured = {key: found for key, found in self.failed.items() if key not in self.measured}
        terminal = sum(found.is_terminal for found in unmeasured.values())
        spent = sum(not found.is_terminal and found.attempts >= self.max_attempts for found in unmeasured.values())
        return unmeasured, terminal, spent

    def next_step(self) -> str:
        """What can be done about the rollouts that aren't measured, in a sentence or two."""
        _, terminal, spent = self._unmeasured()
        more = f"{MAX_ROLLOUT_ATTEMPTS_ENV}={self.max_attempts + DEFAULT_MAX_ROLLOUT_ATTEMPTS}"
        if self.left:
            rest = [f"{spent} have had their {self.max_attempts} attempts (more by {more})"] if spent else []
            rest += [f"{terminal} failed for good"] if terminal else []
            return "Run again with --resume to try them again" + (f"; but {', '.join(rest)}." if rest else ".")
        if spent:
            return f"{spent} of them have had their {self.max_attempts} attempts: {more} and --resume give them more."
        return (
            "They failed for good, so --resume would not try them again: mend what their records name, then begin "
            "anew without --resume."
        )

    def summary(self) -> str:
        """One line about what was found and what will be done."""
        unmeasured, terminal, spent = self._unmeasured()
        attempts = sum(found.attempts for found in unmeasured.values())
        unknown = sum(key not in self.measured for key in self.unknown)
        return (
            f"Resuming: {self.planned} planned, {len(self.measured)} measured, {attempts} failed attempts of "
            f"{len(unmeasured)} rollouts ({terminal} not to be retried, {spent} out of attempts), {unknown} cut off "
            f"with no result, {len(self.left)} to run."
        )


def get_max_rollout_attempts() -> int:
    """How often a rollout is tried over all resumed runs (`NEMO_GYM_MAX_ROLLOUT_ATTEMPTS`, default 3)."""
    text = os.environ.get(MAX_ROLLOUT_ATTEMPTS_ENV)
    if text is None:
        return DEFAULT_MAX_ROLLOUT_ATTEMPTS
    try:
        attempts = int(text)
    except ValueError:
        attempts = 0
    if attempts < 1:
        warn(f"{MAX_ROLLOUT_ATTEMPTS_ENV}={text} is no whole number from 1: using {DEFAULT_MAX_ROLLOUT_ATTEMPTS}.")
        return DEFAULT_MAX_ROLLOUT_ATTEMPTS
    return attempts


def missing_for_resume(results: ResultSet) -> list[Path]:
    """The files a set lacks to be gone on with."""
    return [path for path in (results.materialized, results.output) if not path.exists()]


def read_state(results: ResultSet, options: ResumeOptions, boundary_of: BoundaryOf | None = None) -> ResumeState:
    """Repair torn last lines, set damaged ones aside, saying so, and read what the set holds.

    Raises PlanError for a line of the plan that can't be read. Of the journal such lines are only told about: the
    records are what counts.
    """
    for path in (results.output, results.failures, results.journal):
        if path.exists() and (dropped := repair_tail(path)):
            warn(f"Dropped a truncated final line ({dropped} bytes) of {path}.")
    try:
        return _read_state(results, options, boundary_of)
    except PlanError:
        raise
    except RowError:
        if not set_damaged_aside(results):
            raise
    return replace(_read_state(results, options, boundary_of), is_rewritten=True)


def _read_state(results: ResultSet, options: ResumeOptions, boundary_of: BoundaryOf | None) -> ResumeState:
    history, is_tiled = _history(results)
    state = ResumeState(max_attempts=get_max_rollout_attempts(), unknown=history.unfinished, history=history)
    if is_tiled:
        state.measured = history.measured
    else:
        _read_records(results, state)
    _read_failures(results, state, options, boundary_of)
    seen, measured = RolloutKeys(), state.measured
    for block, keys in _planned(results):
        are_new = seen.add_all(keys)
        state.planned += sum(are_new)
        left = [place for place in measured.lacking(keys) if are_new[place] and state.is_left(keys[place])]
        if left:
            offsets = block.offsets()
            state.left.extend(offsets[place] for place in left)
            for key in (keys[place] for place in left):
                if key in history.measured:
                    state.unknown.setdefault(key, 0)  # its record was taken away
    return state


def _planned(results: ResultSet) -> Iterator[tuple[RowBlock, list[RolloutKey]]]:
    """The rows of the plan and their rollouts. Raises PlanError naming what can be done about it."""
    try:
        for block in object_blocks(results.materialized):
            keys = [key for row in block.rows if (key := key_of(row)) is not None]
            if len(keys) < len(block.rows):
                place = next(place for place, row in enumerate(block.rows) if key_of(row) is None)
                at = block.offsets()[place]
                raise RowError(f"{results.materialized}: the row at byte {at} names no task or no repeat.")
            yield block, keys
    except RowError as error:
        raise PlanError(
            f"{error} It is a row of the plan of {results.output}: put it back; or run without --resume, which begins "
            "anew and moves these results aside."
        ) from None


def on_file(results: ResultSet, live: Coverage, boundary_of: BoundaryOf) -> Coverage:
    """The books of a set as its files have them, where a run knows more than they; unreadable lines don't count."""
    tally = Tally(live.asked)
    for path, outcome in ((results.failures, "failed"), (results.output, "measured")):
        for record in _readable(path):
            key = key_of(record)
            if key is not None and outcome == "measured":
                tally.measure(key)
            elif key is not None:
                tally.fail(key, (boundary_of(record), failure_class_of(record) or "unknown"))
    return replace(tally.coverage(), not_started=live.not_started)


def _readable(path: Path) -> Iterator[Row]:
    with suppress(OSError), path.open("rb") as lines:
        for line in lines:
            with suppress(RowError):
                yield loads_jsonl_line(line, path, 0)


def _history(results: ResultSet) -> tuple[History, bool]:
    """What the journal says, and whether the records on file are exactly those it knows."""
    history, tiling = History(), Tiling(results.output)
    damaged: list[int] = []
    for entries in journal_blocks(results.journal, damaged.append):
        tiling.follow(history.add(entries))
    if damaged:
        warn(f"{results.journal} has lines that can't be read (the first is line {damaged[0]}): they are skipped.")
    return history, tiling.close()


def _read_records(results: ResultSet, state: ResumeState) -> None:
    history = state.history
    history.retried = Retried()  # of the records on file: the journal may know some that were taken away
    for offset, record in objects_at(results.output):
        if (key := key_of(record)) is not None:
            is_new = state.measured.add(key)
            tries = history.tries.get(key, 1)
            if key not in history.measured:
                state.unnoted.append((results.output, offset))
                tries = 1 + (index_in(record, ATTEMPT_INDEX_KEY_NAME) or 0) + history.retries.get(key, 0)
            if is_new:
                history.retried.add(reward_of(record), tries=tries)


def _read_failures(
    results: ResultSet, state: ResumeState, options: ResumeOptions, boundary_of: BoundaryOf | None
) -> None:
    for offset, record in objects_at(results.failures):
        if (key := key_of(record)) is None:
            continue
        found = state.failed.setdefault(key, FailedRollout())
        _note_failure(found, record, options)
        failure_class = failure_class_of(record) or "unknown"
        boundary = rule_for(failure_class).boundary if boundary_of is None else boundary_of(record)
        found.failure = (boundary, failure_class)
        if found.attempts > state.history.failures.get(key, 0):
            state.unnoted.append((results.failures, offset))


def repairs(results: ResultSet, state: ResumeState) -> Iterator[Mapping[str, Any]]:
    """The entries that the journal lacks: a process died between writing a record and saying so."""
    for path, offset in state.unnoted:
        with path.open("rb") as file:
            file.seek(offset)
            line = file.readline().rstrip(b"\n")
        record = loads_jsonl_line(line, path, 0)
        key = key_of(record)
        if key is not None:
            yield done_entry(_completion_of(key, record, state, measured=path == results.output), line, offset)


def _completion_of(key: RolloutKey, record: Mapping[str, Any], state: ResumeState, *, measured: bool) -> Completion:
    failed = None if measured else state.failed.get(key)
    return Completion(
        *key,
        index_in(record, ATTEMPT_INDEX_KEY_NAME) or 0,
        "measured" if measured else "failed",
        failure_class=failure_class_of(record),
        reward=reward_of(record),
        boundary=failed.failure[0] if failed is not None else None,
        retries=state.history.retries.get(key, 0),
        index=index_fields(record),
    )


def rows_left(plan: Path, state: ResumeState, options: ResumeOptions) -> Iterator[Row]:
    """The rows still to be run, with their attempt number, in plan order or (if asked) slow ones first."""
    with plan.open("rb") as lines:
        for offset in _slow_first(plan, state) if options.longest_first else state.left:
            row = object_at(lines, offset, plan)
            key = key_of(row)
            failed = state.failed.get(key) if key is not None else None
            if failed is not None:
                row[ATTEMPT_INDEX_KEY_NAME] = failed.attempts
                if failed.reuses_deliverable:
                    row[REUSE_CACHED_DELIVERABLE_KEY] = True
            yield row


def check_identity(
    results: ResultSet, earlier: Identity | None, identity: Identity, *, anyway: bool = False
) -> list[str]:
    """What differs between the run that a set holds (its `earlier_identity`) and one that wants to go on with it.

    Raises ResumeRefusedError naming the differences unless `anyway`; then they are told. A set that doesn't say what it
    is a run of (from NeMo Gym 0.7, or cut together) is taken as it is, with a notice.
    """
    if earlier is None:
        notify(
            f"{results.journal} doesn't say how {results.output} was made: it is gone on with as it is, each rollout "
            "in it counting as measured."
        )
        return []
    found = differences(earlier, identity)
    if found and not anyway:
        raise ResumeRefusedError(
            f"{results.output} was made in another way than this run would go on:\n{listed(found)}\nChoose "
            "--resume-anyway to go on in the new way (the books will say so), --overwrite to begin anew, or another "
            "--output."
        )
    if found:
        warn(f"Resuming although this differs from how {results.output} was begun:\n{listed(found)}")
    return found


def earlier_identity(results: ResultSet) -> Identity | None:
    """What the last run of a set was a run of; None where nothing says so."""
    entries = [entry for entry in run_entries(results.journal) if isinstance(entry.get("identity"), Mapping)]
    return Identity.of_entry(entries[-1]["identity"]) if entries else None


def plan_digest(results: ResultSet) -> str | None:
    """The digest of the plan of a set as its first run wrote it; None where nothing says so."""
    found = (entry.get("plan") for entry in run_entries(results.journal))
    return next((digest for digest in found if isinstance(digest, str)), None)


def _note_failure(found: FailedRollout, record: Mapping[str, Any], options: ResumeOptions) -> None:
    found.attempts += 1
    found.is_terminal |= is_terminal_failure(record, retry_terminal_timeouts=options.retry_terminal_timeouts)
    found.reuses_deliverable |= bool(record.get(REUSE_CACHED_DELIVERABLE_KEY))
    seconds = observed_elapsed(record)
    if seconds is not None:
        found.seconds = max(found.seconds or 0.0, seconds)


def _slow_first(plan: Path, state: ResumeState) -> Iterator[int]:
    """Where the rows left begin in the plan: those known to be slow first, the slowest of them before the others."""
    durations = {key: found.seconds for key, found in state.failed.items() if found.seconds is not None}
    known: list[tuple[float, int]] = []
    with plan.open("rb") as lines:
        for offset in state.left if durations else ():
            key = key_of(object_at(lines, offset, plan))
            if key in durations:
                known.append((durations[key], offset))
    yield from (offset for _, offset in sorted(known, key=lambda entry: -entry[0]))
    slow = {offset for _, offset in known}
    yield from (offset for offset in state.left if offset not in slow)
