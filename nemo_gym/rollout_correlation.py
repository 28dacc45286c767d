"""Which rollout the running code works for."""

from nemo_gym.serve.correlation import (
    ROLLOUT_ID_PATTERN,
    RolloutContextMiddleware,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
)

__all__ = [
    "ROLLOUT_ID_PATTERN",
    "RolloutContextMiddleware",
    "current_rollout_id",
    "maybe_rollout_id_from_run_body",
    "rollout_context",
]
