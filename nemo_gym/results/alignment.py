"""Rows and results in memory, matched by (task index, rollout index)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from nemo_gym.results.errors import MismatchedRolloutsError
from nemo_gym.results.records import Record, RolloutKey, rollout_key

_SHOWN = 10

RecordT = TypeVar("RecordT", bound=Mapping[str, object])


def index_by_rollout_key(records: Sequence[RecordT], what: str) -> dict[RolloutKey, RecordT]:
    """Records by key. MismatchedRolloutsError when a key occurs twice; `what` names the records in it."""
    index: dict[RolloutKey, RecordT] = {}
    for record in records:
        key = rollout_key(record)
        if key in index:
            raise duplicate_error(key, what)
        index[key] = record
    return index


def align_rows_and_results(
    rows: Sequence[Record], results: Sequence[Record], allow_partial_rollouts: bool = False
) -> list[tuple[Record, Record]]:
    """(row, result) pairs in the order of `rows`, leaving out rows without result.

    MismatchedRolloutsError, a ValueError, for a key that occurs twice on one side, for results without row, and for
    rows without result unless `allow_partial_rollouts`.
    """
    rows_by_key = index_by_rollout_key(rows, "input rows")
    results_by_key = index_by_rollout_key(results, "rollouts")
    extra = [key for key in results_by_key if key not in rows_by_key]
    missing = [key for key in rows_by_key if key not in results_by_key]
    require_matching(extra, missing, allow_partial_rollouts)
    return [(row, results_by_key[key]) for key, row in rows_by_key.items() if key in results_by_key]


def duplicate_error(key: RolloutKey, what: str) -> MismatchedRolloutsError:
    return MismatchedRolloutsError(
        f"task {key[0]}, rollout {key[1]} occurs more than once in the {what}; each (task, rollout) may occur once"
    )


def require_matching(extra: Sequence[RolloutKey], missing: Sequence[RolloutKey], allow_partial_rollouts: bool) -> None:
    if extra:
        raise MismatchedRolloutsError(
            f"{len(extra)} rollouts have no input row; check that both files are of the same run. "
            f"(task, rollout): {_first(extra)}"
        )
    if missing and not allow_partial_rollouts:
        raise MismatchedRolloutsError(
            f"{len(missing)} input rows have no rollout yet; finish the run, or profile what is there with "
            f"`++allow_partial_rollouts=True`. (task, rollout): {_first(missing)}"
        )


def _first(keys: Sequence[RolloutKey]) -> str:
    return ", ".join(map(str, keys[:_SHOWN])) + (", …" if len(keys) > _SHOWN else "")
