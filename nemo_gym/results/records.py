"""What the books need from a row or a record: its identity, who ran it, and its numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
ENVIRONMENT_SERVER = "_ng_environment_server"
AGENT_REF = "agent_ref"
MASK_SAMPLE = "mask_sample"
PERF = "ng_perf"
REWARD = "reward"

_LARGEST = sys.float_info.max
_NO_NUMBERS = frozenset({str, dict, list, type(None)})

Record = Mapping[str, Any]
RolloutKey = tuple[int, int]


def index_of(record: Record, name: str) -> int | None:
    """The integer under `name`, or None when absent or null. ValueError for anything else."""
    value = record.get(name)
    if type(value) is int or value is None:
        return value
    raise ValueError(f"`{name}` must be an integer, not {value!r}")


def rollout_key(record: Record) -> RolloutKey:
    """(task index, rollout index). ValueError when either is missing."""
    task, rollout = record.get(TASK_INDEX), record.get(ROLLOUT_INDEX)
    if type(task) is int and type(rollout) is int:
        return task, rollout
    task, rollout = index_of(record, TASK_INDEX), index_of(record, ROLLOUT_INDEX)
    if task is None or rollout is None:
        missing = TASK_INDEX if task is None else ROLLOUT_INDEX
        raise ValueError(f"`{missing}` is missing")
    return task, rollout


def is_masked(record: Record) -> bool:
    return bool(record.get(MASK_SAMPLE))


# What is nearly always a dict isn't asked for more: isinstance with Mapping takes ten times as long.
def agent_name(record: Record) -> str | None:
    reference = record.get(AGENT_REF)
    name = reference.get("name") if type(reference) is dict or isinstance(reference, Mapping) else None
    return name if isinstance(name, str) else None


def usage_of(record: Record) -> Record:
    response = record.get("response")
    usage = response.get("usage") if type(response) is dict or isinstance(response, Mapping) else None
    return usage if type(usage) is dict or isinstance(usage, Mapping) else {}


def as_number(name: str, value: object) -> int | float | None:
    """`value` as a number that may be averaged, else None.

    Booleans count as 0 and 1, except as a reward: there they are a verifier's mistake. NaN, infinities and integers
    beyond the range of a float are no measurements.
    """
    if isinstance(value, bool):
        return None if name == REWARD else int(value)
    if not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def numbers_in(fields: Record) -> dict[str, int | float]:
    """The numbers directly in `fields`, except under names that begin with `_`."""
    numbers: dict[str, int | float] = {}
    for name, value in fields.items():
        kind = type(value)
        if kind in _NO_NUMBERS or name[:1] == "_":
            continue
        if (kind is float or kind is int) and -_LARGEST <= value <= _LARGEST:
            numbers[name] = value
        elif (number := as_number(name, value)) is not None:
            numbers[name] = number
    return numbers
