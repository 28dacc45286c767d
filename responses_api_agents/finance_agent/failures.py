"""Rollouts that came to nothing: answered like any other, with reward 0, and marked as no measurement."""

from __future__ import annotations

import time
from typing import Any

from nemo_gym.failure_kinds import AGENT_TIMEOUT
from nemo_gym.rollouts.failures import failure_row

CLASS_KEY = "ng_failure_class"
REASON_KEY = "ng_failure_reason"
"""Where a response's metadata says that something failed under it, from `/v1/responses` to `/run`."""

TOOL_ERROR = "finance_agent:tool_error"
_MAX_REASON_CHARS = 500


class ModelCallTimeoutError(TimeoutError):
    """The model took longer than `model_call_timeout`."""


def described(failure: BaseException | str) -> dict[str, str]:
    """Metadata that says what failed: an error on the way, or what a tool said."""
    return {CLASS_KEY: _class_of(failure), REASON_KEY: _reason(failure)}


def marked(verdict: dict[str, Any], metadata: dict[str, str]) -> dict[str, Any]:
    """A verdict that counts in no mean, because of what the response's metadata says."""
    kind, reason = metadata[CLASS_KEY], metadata.get(REASON_KEY, "")
    return {**verdict, **_mask(verdict, kind, reason), "_ng_failure_class": kind, "_ng_failure_message": reason}


def failed_rollout(row: dict[str, Any], error: BaseException) -> dict[str, Any]:
    """The result of a rollout that ended with an error: an empty response, and what is known of the error."""
    kind = _class_of(error)
    response = {
        "id": "error",
        "created_at": time.time(),
        "model": "error",
        "object": "response",
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {"stop_reason": "error"},
    }
    facts = {**failure_row(error), "_ng_failure_class": kind}
    return {**row, "response": response, "reward": 0.0, **_mask(row, kind, _reason(error)), **facts}


def _mask(row: dict[str, Any], kind: str, reason: str) -> dict[str, Any]:
    config = row.get("instance_config")
    return {
        "mask_sample": True,
        "failure_kind": kind,
        "failure_reason": reason,
        "instance_config": {**(config if isinstance(config, dict) else {}), "mask_sample": True},
    }


def _class_of(failure: BaseException | str) -> str:
    if isinstance(failure, str):
        return TOOL_ERROR
    if isinstance(failure, ModelCallTimeoutError):
        return AGENT_TIMEOUT
    return str(failure_row(failure)["_ng_failure_class"])


def _reason(failure: BaseException | str) -> str:
    text = failure if isinstance(failure, str) else f"{type(failure).__name__}: {failure}"
    return text[:_MAX_REASON_CHARS]
