"""Going on with a result set: what is done, what must not be tried again, and what is left."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.config.keys import ATTEMPT_INDEX_KEY_NAME
from nemo_gym.config.notices import warn
from nemo_gym.rollouts.failures import is_terminal_failure
from nemo_gym.rollouts.journal import read_journal, unfinished_attempts
from nemo_gym.rollouts.keys import REUSE_CACHED_DELIVERABLE_KEY
from nemo_gym.rollouts.keyset import RolloutKey, RolloutKeys
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.records import key_of, observed_elapsed
from nemo_gym.rollouts.rows import Row, object_at, objects, objects_at
from nemo_gym.rollouts.tail import repair_tail

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
    reuses_deliverable: bool = False
    seconds: float | None = None


@dataclass
class ResumeState:
    """The books of a result set, read back."""

    planned: int = 0
    left: int = 0
    measured: RolloutKeys = field(default_factory=RolloutKeys)
    failed: dict[RolloutKey, FailedRollout] = field(default_factory=dict)
    unknown: dict[RolloutKey, int] = field(default_factory=dict)
    max_attempts: int = DEFAULT_MAX_ROLLOUT_ATTEMPTS

    def is_left(self, key: RolloutKey | None) -> bool:
        """Whether a planned rollout is to be dispatched."""
        if key is None:
            return True
        failed = self.failed.get(key)
        return key not in self.measured and not (
            failed and (failed.is_terminal or failed.attempts >= self.max_attempts)
        )

    def summary(self) -> str:
        """One line about what was found and what will be done."""
        unmeasured = {key: found for key, found in self.failed.items() if key not in self.measured}
        terminal = sum(found.is_terminal for found in unmeasured.values())
        spent = sum(not found.is_terminal and found.attempts >= self.max_attempts for found in unmeasured.values())
        attempts = sum(found.attempts for found in unmeasured.values())
        unknown = sum(key not in self.measured for key in self.unknown)
        return (
            f"Resuming: {self.planned} planned, {len(self.measured)} measured, {attempts} failed attempts of "
            f"{len(unmeasured)} rollouts ({terminal} not to be retried, {spent} out of attempts), {unknown} cut off "
            f"with no result, {self.left} to run."
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


def read_state(results: ResultSet, options: ResumeOptions) -> ResumeState:
    """Repair torn last lines, saying so, and read what the set holds.

    Raises RowError for a line in the middle of a file that can't be read.
    """
    for path in (results.output, results.failures, results.journal):
        if path.exists() and (dropped := repair_tail(path)):
            warn(f"Dropped a truncated final line ({dropped} bytes) of {path}.")
    state = ResumeState(max_attempts=get_max_rollout_attempts(), unknown=unfinished_attempts(results.journal))
    for record in objects(results.output):
        if (key := key_of(record)) is not None:
            state.measured.add(key)
    for record in objects(results.failures):
        if (key := key_of(record)) is not None:
            _note_failure(state.failed.setdefault(key, FailedRollout()), record, options)
    for row in objects(results.materialized):
        state.planned += 1
        state.left += state.is_left(key_of(row))
    return state


def rows_left(plan: Path, state: ResumeState, options: ResumeOptions) -> Iterator[Row]:
    """The rows still to be run, with their attempt number, in plan order or (if asked) slow ones first."""
    rows = _slow_first(plan, state) if options.longest_first else objects(plan)
    for row in rows:
        key = key_of(row)
        if not state.is_left(key):
            continue
        failed = state.failed.get(key) if key is not None else None
        if failed is not None:
            row[ATTEMPT_INDEX_KEY_NAME] = failed.attempts
            if failed.reuses_deliverable:
                row[REUSE_CACHED_DELIVERABLE_KEY] = True
        yield row


def check_identity(results: ResultSet) -> Mapping[str, Any]:
    """What the run that is resumed was a run of, as its journal's first entry says; nothing for a foreign set.

    This is where a resume is refused when config, model, input or code differ.
    """
    return next((entry for entry in read_journal(results.journal) if entry.get("kind") == "run"), {})


def _note_failure(found: FailedRollout, record: Mapping[str, Any], options: ResumeOptions) -> None:
    found.attempts += 1
    found.is_terminal |= is_terminal_failure(record, retry_terminal_timeouts=options.retry_terminal_timeouts)
    found.reuses_deliverable |= bool(record.get(REUSE_CACHED_DELIVERABLE_KEY))
    seconds = observed_elapsed(record)
    if seconds is not None:
        found.seconds = max(found.seconds or 0.0, seconds)


def _slow_first(plan: Path, state: ResumeState) -> Iterator[Row]:
    durations = {key: found.seconds for key, found in state.failed.items() if found.seconds is not None}
    known = [(durations[key], offset) for offset, row in objects_at(plan) if (key := key_of(row)) in durations]
    with plan.open("rb") as lines:
        for _, offset in sorted(known, key=lambda entry: -entry[0]):
            yield object_at(lines, offset, plan)
    for row in objects(plan):
        if key_of(row) not in durations:
            yield row
