"""The health checks that end a run of `gym eval run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nemo_gym.config.notices import warn

if TYPE_CHECKING:
    from nemo_gym.rollout_collection import RolloutCollectionConfig


def check_health(config: RolloutCollectionConfig) -> None:
    """Check what was recorded, write the report beside it and tell how it stands; what goes wrong is a warning.

    Nothing is done where no record is, or where the run was to leave it out.
    """
    if config.disable_health_check or config.disable_aggregation or config.rollout_collection_driver is not None:
        return
    records = Path(config.output_jsonl_fpath)
    if not records.is_file() or not records.stat().st_size:
        return
    from nemo_gym.rollout_health import format_health_report, run_health_checks

    try:
        result = run_health_checks(
            records, workers=config.health_check_workers, ignored_checks=config.health_check_ignored_checks
        )
    except Exception as error:
        warn(f"The health of {records} could not be checked: {error}")
        return
    print(format_health_report(result))
