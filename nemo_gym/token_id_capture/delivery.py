"""Captured tokens on the record of a finished rollout, and out of the store once that record is safe."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym.config.keys import (
    ATTEMPT_INDEX_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.token_id_capture.consumer import BuiltRollout, build_rollout
from nemo_gym.token_id_capture.projection import carries_tokens
from nemo_gym.token_id_capture.protocols import TokenSource

TOKEN_CAPTURE_KEY = "_ng_token_capture"
TERMINAL_CALL_KEY = "_ng_terminal_model_call_id"
TERMINAL_RESPONSE_ID_KEY = "terminal_response_id"
MASK_SAMPLE_KEY = "mask_sample"

_logger = logging.getLogger("nemo_gym.token_id_capture")


@dataclass(frozen=True)
class Delivery:
    """What became of a rollout's tokens. `built` is None when there was nothing to build or it failed."""

    rollout_id: str | None
    masked: bool
    built: BuiltRollout | None = None


async def finalize_rollout_token_capture(
    result: dict[str, Any], source: TokenSource, *, rollout_id: str | None = None
) -> Delivery:
    """Put the captured tokens on a rollout's record, in place; never raises.

    `response.output` becomes the main chain's, `_ng_token_capture` says what was captured, and `mask_sample` is set
    when the rollout may not be trained on. A record that carries token ids already is left as it is.
    """
    rollout_id = rollout_id or rollout_id_of(result)
    response = result.get("response")
    if isinstance(response, Mapping) and carries_tokens(response.get("output")):
        return Delivery(rollout_id, masked=False)
    try:
        if rollout_id is None:
            raise ValueError("the record doesn't say which rollout it is of")
        built = await build_rollout(
            rollout_id,
            source,
            verified_response=dict(response) if isinstance(response, Mapping) else None,
            explicit_terminal_call_id=result.get(TERMINAL_CALL_KEY),
            declared_response_id=result.get(TERMINAL_RESPONSE_ID_KEY),
        )
    except Exception as error:
        _logger.warning("Rollout %s: its tokens can't be put together: %r", rollout_id, error)
        result[TOKEN_CAPTURE_KEY] = {"error": f"{type(error).__name__}: {error}"}
        result[MASK_SAMPLE_KEY] = True
        return Delivery(rollout_id, masked=True)
    result[TOKEN_CAPTURE_KEY] = built.metrics()
    if built.response is not None:
        own = dict(response) if isinstance(response, Mapping) else built.response
        result["response"] = {**own, "output": built.response["output"]}
    if built.masked:
        result[MASK_SAMPLE_KEY] = True
    return Delivery(rollout_id, built.masked, built)


async def retire_rollout_token_capture(
    rollout_id: str, source: TokenSource, built: BuiltRollout | Delivery | None
) -> bool:
    """Drop a rollout from the source, if it is still what was built; whether it was.

    Only after the record with its tokens is safe: nothing else holds them then.
    """
    rollout = built.built if isinstance(built, Delivery) else built
    if rollout is None:
        return False
    snapshot = rollout.snapshot
    return await source.drop(rollout_id, snapshot_id=snapshot.snapshot_id, version=snapshot.version)


def rollout_id_of(record: Mapping[str, Any]) -> str | None:
    """The id under which a record's model calls were captured, None when it lacks its indices."""
    own = record.get(ROLLOUT_ID_KEY_NAME)
    task, rollout = record.get(TASK_INDEX_KEY_NAME), record.get(ROLLOUT_INDEX_KEY_NAME)
    if own is None and (task is None or rollout is None):
        return None
    attempt = record.get(ATTEMPT_INDEX_KEY_NAME)
    base = str(own) if own is not None else f"{task}-{rollout}"
    return f"{base}-a{attempt}" if isinstance(attempt, int) and attempt > 0 else base
