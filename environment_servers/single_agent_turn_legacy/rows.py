"""Rows of data sets as episode requests, and what came of episodes as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import HTTPException
from pydantic import ValidationError

from nemo_gym.episode_types import is_materialized_task_row
from nemo_gym.global_config import (
    AGENT_REF_KEY_NAME,
    ATTEMPT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
)
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.single_agent_turn_types import SingleAgentTurnFailure, SingleAgentTurnRequest, SingleAgentTurnResponse
from nemo_gym.task_materialization import materialize_task

FAILURE_CLASS = "environment_server_failed"


def episode_of(body: Mapping[str, Any], *, agent: str, bound: Sequence[str]) -> SingleAgentTurnRequest:
    """The episode that a row, or an episode request, asks for; HTTPException 422 for what asks for none.

    `bound` are the instances whose rows may come here; rows that don't say where they are from are the first one's.
    """
    try:
        is_request = "episode_id" in body and isinstance(body.get("task"), Mapping)
        return SingleAgentTurnRequest.model_validate(body if is_request else _request_of(body, agent, bound))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise HTTPException(422, problems) from None
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


def _request_of(row: Mapping[str, Any], agent: str, bound: Sequence[str]) -> dict[str, Any]:
    source = row.get(TASK_SOURCE_KEY_NAME) or bound[0]
    if source not in bound:
        raise ValueError(f"the row is from {source!r}: this server runs rows of {', '.join(bound)}")
    reference = row.get(AGENT_REF_KEY_NAME)
    named = reference.get("name") if isinstance(reference, Mapping) else reference
    if named is not None and named != agent:
        raise ValueError(f"the row names the agent {named!r}: this server runs {agent!r}")
    return {
        "episode_id": {"rollout_id": _rollout_id(row), "attempt": _attempt(row)},
        "task": _task(row, str(source)),
    }


def _task(row: Mapping[str, Any], source: str) -> dict[str, Any]:
    if is_materialized_task_row(row):
        return {"task_id": row["task_id"], "task_input": row["task_input"]}
    task: dict[str, Any] = materialize_task(row, taskset=source, task_index=row.get(TASK_INDEX_KEY_NAME))
    return task


def _rollout_id(row: Mapping[str, Any]) -> str:
    first = {key: value for key, value in row.items() if key != ATTEMPT_INDEX_KEY_NAME}
    rollout_id = maybe_rollout_id_from_run_body(first)
    if rollout_id is None:
        raise ValueError("the row needs _ng_rollout_id, or both _ng_task_index and _ng_rollout_index")
    return rollout_id


def _attempt(row: Mapping[str, Any]) -> int:
    attempt = row.get(ATTEMPT_INDEX_KEY_NAME, 0)
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
        raise ValueError(f"{ATTEMPT_INDEX_KEY_NAME} is {attempt!r}: it must be a whole number from 0")
    return attempt


def record_of(response: SingleAgentTurnResponse, agent: str) -> dict[str, Any]:
    """The result, or why there is none, as a row."""
    if response.failure is not None:
        return {**_failure_of(response.failure), AGENT_REF_KEY_NAME: {"name": agent}}
    assert response.result is not None
    record = response.result.model_dump(mode="json", by_alias=True)
    if record["ng_agent_observations"] is None:
        del record["ng_agent_observations"]
    return {**record, AGENT_REF_KEY_NAME: {"name": agent}}


def _failure_of(failure: SingleAgentTurnFailure) -> dict[str, Any]:
    row: dict[str, Any] = {
        "_ng_failure_class": FAILURE_CLASS,
        "_ng_failure_terminal": failure.terminal,
        "_ng_failure_message": failure.failure_reason,
        "_ng_failure_stage": failure.stage,
    }
    if failure.partial_response is not None:
        row["_ng_failure_partial_response"] = failure.partial_response.model_dump(mode="json")
    return row
