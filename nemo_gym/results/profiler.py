"""Reward profiles of rows and rollouts held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.results.alignment import align_rows_and_results
from nemo_gym.results.metric_names import Stat
from nemo_gym.results.records import ROLLOUT_INDEX, TASK_INDEX, Record, rollout_key

if TYPE_CHECKING:
    from nemo_gym.results.dataframes import DataFrame, DataFrameGroupBy, Series
    from nemo_gym.results.pairing import PairedRollouts

Entries = list[dict[str, Any]]
HISTOGRAM_PREFIX = Stat.HISTOGRAM.prefix


class RewardProfiler:
    """Statistics of rollouts per task, per agent and per repeat."""

    def align_rows_and_results(
        self, rows: Sequence[Record], results: Sequence[Record], allow_partial_rollouts: bool = False
    ) -> list[tuple[Record, Record]]:
        return align_rows_and_results(rows, results, allow_partial_rollouts)

    def profile_completion_summary(self, rows: Sequence[Record], results: Sequence[Record]) -> dict[str, int | float]:
        """How many of the planned rollouts there are. An input row is a (task, run), whatever its repeats."""
        return _paired(rows, results).completion()

    def profile_from_data(
        self, rows: Sequence[Record], results: Sequence[Record], allow_partial_rollouts: bool = False
    ) -> tuple[Entries, Entries, Entries]:
        """(group-level, agent-level, repeat-level) entries of the results that aren't masked.

        Raises MismatchedRolloutsError, a ValueError, as `align_rows_and_results` does.
        """
        paired = _paired(rows, results)
        paired.require_match(allow_partial_rollouts)
        profile = paired.profile(sample=lambda position: without_indices(rows[position]))
        repeats = profile.repeats()
        return list(profile.groups()), profile.agents_across(repeats), repeats

    def rollout_info_from_result(self, result: Record) -> dict[str, int | float | str]:
        from nemo_gym.results.infos import rollout_info

        return rollout_info(*rollout_key(result), result)

    def histogram(self, data: Series) -> Any:
        """A histogram of a pandas series without its missing values; None when nothing is left."""
        from nemo_gym.results.dataframes import histogram

        return histogram(data)

    def describe_dataframe(self, df: DataFrame) -> DataFrame:
        """The profile's statistics (rows) of every column of numbers. Needs pandas, or raises MissingPackageError."""
        from nemo_gym.results.dataframes import describe_dataframe

        return describe_dataframe(df)

    def calculate_metrics_single_df(self, grouped_df: DataFrameGroupBy) -> Entries:
        """One entry per group of a pandas grouping: its keys and statistics. Raises MissingPackageError."""
        from nemo_gym.results.dataframes import group_metrics

        return group_metrics(grouped_df)

    def prepare_for_serialization(self, metrics: Iterable[Mapping[str, Any]]) -> Entries:
        """The entries without histograms, which have no JSON form."""
        return [{k: v for k, v in entry.items() if not k.startswith(HISTOGRAM_PREFIX)} for entry in metrics]

    def write_to_disk(
        self,
        group_level_metrics: Iterable[Mapping[str, Any]],
        agent_level_metrics: Iterable[Mapping[str, Any]],
        repeat_level_metrics: Iterable[Mapping[str, Any]],
        base_output_fpath: Path,
    ) -> tuple[Path, Path, Path]:
        """Write the three profile files beside `base_output_fpath` and return their paths."""
        from nemo_gym.results.profile import ProfileFiles

        files = ProfileFiles.beside(base_output_fpath)
        files.write(
            self.prepare_for_serialization(group_level_metrics),
            self.prepare_for_serialization(agent_level_metrics),
            self.prepare_for_serialization(repeat_level_metrics),
        )
        return files.reward_profiling, files.agent_metrics, files.repeat_level_metrics


def without_indices(row: Record) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)}


def _paired(rows: Sequence[Record], results: Sequence[Record]) -> PairedRollouts:
    from nemo_gym.results.pairing import Pairing

    pairing = Pairing()
    pairing.add_rows([rollout_key(row) for row in rows], rows)
    pairing.add_results([rollout_key(result) for result in results], results)
    return pairing.paired()
