"""From what `/run` returned to what is written: identity stamps, episode replies, and the record's line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    ATTEMPT_INDEX_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
)
from nemo_gym.rollouts.errors import ReplyError
from nemo_gym.rollouts.failures import ENVIRONMENT_SERVER_FAILURE_CLASS
from nemo_gym.rollouts.keys import (
    NG_ELAPSED_KEY,
    NG_ENVIRONMENT_SERVER_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_FAILURE_MESSAGE_KEY,
    NG_FAILURE_PARTIAL_RESPONSE_KEY,
    NG_FAILURE_STAGE_KEY,
    NG_MODEL_CALL_CAPTURE_KEY,
    NG_PERF_KEY,
    NG_RESULT_TYPE_KEY,
    NG_TASK_ID_KEY,
    NG_TERMINAL_KEY,
    NG_TRAJECTORY_KEY,
    TASK_ID_KEY,
    TASK_INPUT_KEY,
)

_INDEX_LIMIT = 1 << 63
_TASK_ID_FIELDS = (TASK_ID_KEY, "problem_id", "instance_id")
_ALWAYS_COPIED = (TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME)
_COPIED_WHEN_PRESENT = (
    AGENT_REF_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    ATTEMPT_INDEX_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
)
_RESERVED_RESULT_KEYS = frozenset({NG_TRAJECTORY_KEY, NG_MODEL_CALL_CAPTURE_KEY, NG_PERF_KEY})


def index_in(fields: Mapping[str, Any], key: str) -> int | None:
    """The integer of at most 64 bits under an index key, None when there is none."""
    value = fields.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and -_INDEX_LIMIT <= value < _INDEX_LIMIT:
        return value
    return None


def key_of(fields: Mapping[str, Any]) -> tuple[int, int] | None:
    """(task, repeat) of a row or record, None when it lacks one."""
    task, repeat = fields.get(TASK_INDEX_KEY_NAME), fields.get(ROLLOUT_INDEX_KEY_NAME)
    if type(task) is int and type(repeat) is int and 0 <= task < _INDEX_LIMIT and 0 <= repeat < _INDEX_LIMIT:
        return task, repeat
    task, repeat = index_in(fields, TASK_INDEX_KEY_NAME), index_in(fields, ROLLOUT_INDEX_KEY_NAME)
    return None if task is None or repeat is None else (task, repeat)


def stamp(row: Mapping[str, Any], result: dict[str, Any], server: str | None, server_type: str | None) -> None:
    """Give a result the identity of its row and of the server that ran it, overwriting what it says itself."""
    for key in _ALWAYS_COPIED:
        result[key] = row.get(key)
    for key in _COPIED_WHEN_PRESENT:
        if key in row:
            result[key] = row[key]
    result[NG_ENVIRONMENT_SERVER_KEY] = server
    result[NG_RESULT_TYPE_KEY] = server_type


def record_line(result: Mapping[str, Any]) -> bytes:
    return orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS)


def episode_request(row: Mapping[str, Any]) -> dict[str, Any]:
    """The body that asks an environment server for one episode. Raises ReplyError for a wrong attempt index."""
    from nemo_gym.serve.correlation import maybe_rollout_id_from_run_body

    attempt = row.get(ATTEMPT_INDEX_KEY_NAME, 0)
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
        raise ReplyError(f"`{ATTEMPT_INDEX_KEY_NAME}` is {attempt!r}: it must be a whole number from 0.")
    first = {key: value for key, value in row.items() if key != ATTEMPT_INDEX_KEY_NAME}
    return {
        "episode_id": {"rollout_id": maybe_rollout_id_from_run_body(first), "attempt": attempt},
        "task": {TASK_ID_KEY: row[TASK_ID_KEY], TASK_INPUT_KEY: row[TASK_INPUT_KEY]},
    }


def is_episode_reply(reply: Mapping[str, Any]) -> bool:
    has_ids = isinstance(reply.get("episode_id"), Mapping) and isinstance(reply.get(TASK_ID_KEY), Mapping)
    return has_ids and ("result" in reply or "failure" in reply)


def episode_record(response: Mapping[str, Any]) -> dict[str, Any]:
    """The record of an episode reply: its result with the task's id, or a failure row.

    Raises ReplyError for a failure or result that is no object, and for results that use the collector's keys.
    """
    failure = response.get("failure")
    if failure is not None:
        return _episode_failure(response[TASK_ID_KEY], failure)
    result = response.get("result")
    if not isinstance(result, Mapping):
        raise ReplyError("An environment server's episode result must be an object.")
    reserved = sorted(key for key in result if key.startswith("_ng_") or key in _RESERVED_RESULT_KEYS)
    if reserved:
        raise ReplyError(f"An environment server's episode result uses names kept for Gym: {', '.join(reserved)}.")
    return {**result, NG_TASK_ID_KEY: response[TASK_ID_KEY]}


def _episode_failure(task_id: object, failure: object) -> dict[str, Any]:
    if not isinstance(failure, Mapping):
        raise ReplyError("An environment server's episode failure must be an object.")
    record: dict[str, Any] = {
        NG_TASK_ID_KEY: task_id,
        NG_FAILURE_CLASS_KEY: ENVIRONMENT_SERVER_FAILURE_CLASS,
        NG_TERMINAL_KEY: failure.get("terminal"),
        NG_FAILURE_MESSAGE_KEY: failure.get("failure_reason"),
    }
    optional = {NG_FAILURE_STAGE_KEY: "stage", NG_FAILURE_PARTIAL_RESPONSE_KEY: "partial_response"}
    return record | {key: failure[name] for key, name in optional.items() if failure.get(name) is not None}


def trajectory_identity(row: Mapping[str, Any]) -> tuple[str, str]:
    """The names a trajectory gives its task and its rollout: the task's own id, else its index; the capture id."""
    from nemo_gym.serve.correlation import maybe_rollout_id_from_run_body

    own = next((row[name] for name in _TASK_ID_FIELDS if row.get(name) is not None), row.get(TASK_INDEX_KEY_NAME))
    task_id = own.get(TASK_ID_KEY) if isinstance(own, Mapping) else own
    return str(task_id), str(maybe_rollout_id_from_run_body(row))


def observed_elapsed(record: Mapping[str, Any]) -> float | None:
    """Seconds a rollout took by its own account, None when it gives none."""
    response = record.get("response")
    metadata = response.get("metadata") if isinstance(response, Mapping) else None
    for source in (record, metadata if isinstance(metadata, Mapping) else {}):
        try:
            seconds = float(source.get(NG_ELAPSED_KEY))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if seconds > 0:
            return seconds
    return None


def reward_of(result: Mapping[str, Any]) -> float | None:
    reward = result.get("reward")
    return float(reward) if isinstance(reward, int | float) and not isinstance(reward, bool) else None
