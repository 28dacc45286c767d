"""All checks by id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nemo_gym.config.hints import did_you_mean
from nemo_gym.health import checks
from nemo_gym.health.errors import HealthCheckError
from nemo_gym.health.models import CheckInput, CheckScope, CheckSpec, CheckSubject, RolloutCheck

EXECUTION_ERROR = "check_execution_error"
UNREADABLE = "record_unreadable"
DUPLICATE = "rollout_duplicate_identity"
CONSISTENTLY_UNHEALTHY = "task_consistently_unhealthy"
NO_SUCCESSFUL_CALLS = "task_no_successful_model_calls"


def _rollout(
    id: str, subject: CheckSubject, needs: CheckInput, description: str, run: RolloutCheck | None = None
) -> CheckSpec:
    return CheckSpec(id, CheckScope.ROLLOUT, subject, needs, description, run)


def _task(id: str, needs: CheckInput, description: str) -> CheckSpec:
    return CheckSpec(id, CheckScope.TASK, CheckSubject.TASK, needs, description)


_SPECS = (
    _rollout(EXECUTION_ERROR, CheckSubject.CHECK, CheckInput.RECORD, "Another check failed to run."),
    _rollout(UNREADABLE, CheckSubject.RECORD, CheckInput.RECORD, "The record or its trajectory can't be read."),
    _rollout(DUPLICATE, CheckSubject.ROLLOUT, CheckInput.RECORD, "The same rollout stands in several lines."),
    _rollout(
        "rollout_missing_agent_turns",
        CheckSubject.ROLLOUT,
        CheckInput.TURNS,
        "No turn says anything, calls a tool or refers to a model call.",
        checks.missing_agent_turns,
    ),
    _rollout(
        "rollout_ended_on_failed_model_call",
        CheckSubject.ROLLOUT,
        CheckInput.OBSERVED_CALLS,
        "The last call of a model failed.",
        checks.ended_on_failed_model_call,
    ),
    _rollout(
        "agent_turn_hollow",
        CheckSubject.TURN,
        CheckInput.TURNS,
        "A turn says nothing and calls no tool.",
        checks.hollow_turns,
    ),
    _rollout(
        "model_call_zero_completion_tokens",
        CheckSubject.CALL,
        CheckInput.OWNED_CALLS,
        "A model call gave no token.",
        checks.zero_completion_tokens,
    ),
    _rollout(
        "model_call_missing_token_counts",
        CheckSubject.CALL,
        CheckInput.OWNED_CALLS,
        "A model call doesn't say how many tokens it took.",
        checks.missing_token_counts,
    ),
    _rollout(
        "trajectory_capture_mismatch",
        CheckSubject.CAPTURE,
        CheckInput.OWNED_CALLS,
        "What the agent says it called and what was captured differ.",
        checks.capture_mismatch,
    ),
    _rollout(
        "model_call_failed", CheckSubject.CALL, CheckInput.OWNED_CALLS, "A model call failed.", checks.failed_calls
    ),
    _rollout(
        "rollout_token_count_mismatch",
        CheckSubject.ROLLOUT,
        CheckInput.BOUND_CALLS,
        "The answer and its model calls count different tokens.",
        checks.token_count_mismatch,
    ),
    _rollout(
        "model_call_runaway_generation",
        CheckSubject.CALL,
        CheckInput.OWNED_CALLS,
        "A model call was cut off before it said anything.",
        checks.runaway_generation,
    ),
    _task(CONSISTENTLY_UNHEALTHY, CheckInput.VERDICTS, "All repeats of a task are unhealthy."),
    _task(NO_SUCCESSFUL_CALLS, CheckInput.DIGESTS, "No repeat of a task has a model call that succeeded."),
)

CHECK_REGISTRY: dict[str, CheckSpec] = {spec.id: spec for spec in _SPECS}


def normalize_ignored_checks(ignored: str | Iterable[str] | None) -> list[str]:
    """Ids of checks from a list or comma-separated text, each once. Raises HealthCheckError (a ValueError)."""
    parts: Sequence[str] = ignored.split(",") if isinstance(ignored, str) else [*(ignored or ())]
    ids = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for id in ids:
        if id not in CHECK_REGISTRY:
            raise HealthCheckError(
                f"There is no health check `{id}`; there are {', '.join(CHECK_REGISTRY)}."
                f"{did_you_mean(id, CHECK_REGISTRY)}"
            )
    return ids
