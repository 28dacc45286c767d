"""Rows that become tasks of a taskset, for environment servers."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
)

_ID_FIELDS = ("task_id", "problem_id", "instance_id", TASK_INDEX_KEY_NAME)
_NOT_TASK_INPUT = frozenset({AGENT_REF_KEY_NAME, TASK_SOURCE_KEY_NAME, SKILLS_REF_KEY_NAME})


def materialize_task(
    row: Mapping[str, JsonValue], *, taskset: str, task_index: int | None = None
) -> dict[str, JsonValue]:
    """`{task_id: {taskset, task_id}, task_input}` of a flat row.

    The id is the row's own (`task_id`, `problem_id`, `instance_id` or its index), else `task_index`. Raises ValueError
    for a row that is a task already and for one without an id or index.
    """
    if isinstance(row.get("task_id"), Mapping) and "task_input" in row:
        raise ValueError("The row is a materialised task already: leave `taskset` out of its data set.")
    task_input = {key: value for key, value in row.items() if key not in _NOT_TASK_INPUT and not key.startswith("_ng_")}
    return {"task_id": {"taskset": taskset, "task_id": _task_id(row, task_index)}, "task_input": task_input}


def _task_id(row: Mapping[str, JsonValue], task_index: int | None) -> str:
    for field in _ID_FIELDS:
        if (value := row.get(field)) is not None:
            return str(value)
    if not isinstance(task_index, int) or isinstance(task_index, bool) or task_index < 0:
        raise ValueError(
            f"The row has none of {', '.join(_ID_FIELDS)}, so it needs an index from 0 up, not {task_index!r}."
        )
    return str(task_index)
