"""What a result is given before it is written: its model calls, its trajectory, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.capture.readback import clear_captures, merge_capture
from nemo_gym.capture.settings import model_call_capture_dirs_from_config, observability_enabled_from_config
from nemo_gym.config.notices import warn
from nemo_gym.rollouts.dispatch import RETRIES, CompletedRollout, with_own_capture_id
from nemo_gym.rollouts.failures import is_no_result
from nemo_gym.rollouts.keys import NG_AGENT_OBSERVATIONS_KEY, NG_TRAJECTORY_KEY
from nemo_gym.rollouts.perf import attach_perf
from nemo_gym.rollouts.rows import Row
from nemo_gym.rollouts.trajectories import attach_trajectory
from nemo_gym.serve.correlation import maybe_rollout_id_from_run_body

_HISTORY_REDACTED = "multimodal_history_redacted"


class Enrichment:
    """The evidence of rollouts, found where the config of their servers says that it is left."""

    def __init__(self, global_config: Mapping[Any, Any]) -> None:
        self._observes = observability_enabled_from_config(global_config)
        self._directories: list[Path] = model_call_capture_dirs_from_config(global_config)

    def __call__(self, completed: CompletedRollout) -> None:
        """Add to a stamped result, in place, what was captured while it was made; nothing raises."""
        result = completed.result
        if self._directories and not is_no_result(result):
            self._merge_capture(result)
        attach_trajectory(completed.sent or completed.row, result)
        latency = completed.rollout_latency_ms
        attach_perf(result, observability_enabled=self._observes, rollout_latency_ms=latency)

    def forget_earlier(self, row: Row) -> None:
        """Delete what earlier runs captured of a rollout that is about to run, retries in place included."""
        if not self._directories:
            return
        bodies = [row, *(with_own_capture_id(row, number) for number in range(1, RETRIES + 1))]
        try:
            ids = [rollout_id for body in bodies if (rollout_id := maybe_rollout_id_from_run_body(body)) is not None]
            clear_captures(ids, self._directories)
        except (OSError, ValueError) as error:
            warn(f"Earlier model call captures could not be deleted: {error}")

    def _merge_capture(self, result: dict[str, Any]) -> None:
        rollout_id = maybe_rollout_id_from_run_body(result)
        if rollout_id is not None:
            merge_capture(result, rollout_id, self._directories, include_payloads=not _hides_history(result))


def _hides_history(result: Mapping[str, Any]) -> bool:
    for name in (NG_TRAJECTORY_KEY, NG_AGENT_OBSERVATIONS_KEY):
        source = result.get(name)
        gaps = source.get("gaps") if isinstance(source, Mapping) else None
        codes = {gap.get("code") for gap in gaps if isinstance(gap, Mapping)} if isinstance(gaps, list) else set()
        if _HISTORY_REDACTED in codes:
            return True
    return False
