"""The health checks that end `gym eval run` and `gym eval aggregate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_gym.config.notices import warn

if TYPE_CHECKING:
    from nemo_gym.rollout_collection import RolloutAggregationConfig, RolloutCollectionConfig


def check_health(config: RolloutCollectionConfig | RolloutAggregationConfig, files: Sequence[Path] = ()) -> None:
    """Check the records of a run, or of `files`; write the report beside its output and tell how they stand.

    What goes wrong is a warning. Nothing is done where no record is, or where the run was to leave it out.
    """
    output = Path(config.output_jsonl_fpath)
    found = [path for path in files or [output] if path.is_file() and path.stat().st_size]
    if config.disable_health_check or not found:
        return
    from nemo_gym.rollout_health import format_health_report, run_health_checks

    try:
        result = run_health_checks(
            found,
            output_dir=output.parent,
            workers=config.health_check_workers,
            ignored_checks=config.health_check_ignored_checks,
            run=output.stem,
        )
    except Exception as error:
        warn(f"The health of {output} could not be checked: {error}")
        return
    print(format_health_report(result))


def check_health_of_run(config: RolloutCollectionConfig) -> None:
    """The same after a collection; a run without metrics, or with a driver of its own, has no checks."""
    if not config.disable_aggregation and config.rollout_collection_driver is None:
        check_health(config)
