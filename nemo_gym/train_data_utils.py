"""Preparing data sets for training and evaluation (`gym dataset collate`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, PrivateAttr

from nemo_gym.datasets.metrics import DatasetMetrics
from nemo_gym.datasets.options import TrainDataProcessorConfig
from nemo_gym.datasets.statistics import NumberStatistics as AvgMinMax

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nemo_gym.datasets.declared import DeclaredDataset
    from nemo_gym.datasets.expectations import Conflict

__all__ = ["AvgMinMax", "DatasetMetrics", "TrainDataProcessor", "TrainDataProcessorConfig"]


class TrainDataProcessor(BaseModel):
    """Collects, checks and measures the data sets of a config, phase by phase."""

    _global_config: DictConfig | None = PrivateAttr(default=None)

    def run(self, global_config_dict: DictConfig) -> None:
        """All phases. Raises DatasetError for what stands in the way; files written before that stay."""
        self._global_config = global_config_dict
        config = TrainDataProcessorConfig.model_validate(global_config_dict)
        _banner("1/5 Load configs")
        datasets = self.load_and_validate_server_instance_configs(config, global_config_dict)
        _banner("2/5 Load data sets")
        self.load_datasets(config, datasets)
        _banner("3/5 Check and measure rows")
        metrics = self.validate_samples_and_aggregate_metrics(config, datasets)
        _banner("4/5 Collate rows")
        self.collate_samples(config, datasets, metrics)
        _banner("5/5 Finished!")

    def load_and_validate_server_instance_configs(
        self, config: TrainDataProcessorConfig, global_config_dict: DictConfig
    ) -> list[DeclaredDataset]:
        """The data sets of the mode, printed."""
        from nemo_gym.datasets.declared import listing
        from nemo_gym.datasets.processing import choose

        datasets = choose(global_config_dict, config.in_scope_dataset_types)
        print(listing(datasets))
        return datasets

    def load_datasets(self, config: TrainDataProcessorConfig, datasets: list[DeclaredDataset]) -> None:
        """Check that every file is there."""
        from nemo_gym.datasets.processing import locate

        locate(self._config, datasets, should_download=config.should_download)

    def validate_samples_and_aggregate_metrics(
        self, config: TrainDataProcessorConfig, datasets: list[DeclaredDataset]
    ) -> dict[str, DatasetMetrics]:
        """The metrics by type, once every data set's metrics file is written or found to be kept."""
        from nemo_gym.datasets.processing import check_metrics_files, measure, raise_conflicts

        measured = [(dataset, measure(self._config, dataset)) for dataset in datasets]
        raise_conflicts(check_metrics_files(measured, overwrite=config.overwrite_metrics_conflicts))
        by_type: dict[str, DatasetMetrics] = {}
        for dataset, metrics in measured:
            by_type.setdefault(dataset.type, DatasetMetrics()).merge(metrics)
        return by_type

    def collate_samples(
        self, config: TrainDataProcessorConfig, datasets: list[DeclaredDataset], metrics: dict[str, DatasetMetrics]
    ) -> None:
        """Write each type's rows and metrics into the output folder."""
        from nemo_gym.datasets.collate import PreparedNames
        from nemo_gym.datasets.processing import raise_conflicts

        names, written, conflicts = PreparedNames(), [], []
        for kind in config.in_scope_dataset_types:
            own = [dataset for dataset in datasets if dataset.type == kind]
            if not own:
                continue
            conflict = self._validate_aggregate_metrics(config, own[0], metrics[kind])
            if conflict is not None:
                conflicts.append(conflict)
                continue
            written.append(self._collate_samples_single_type(config, own, names))
        print("View your final data!", *written, sep="\n")
        raise_conflicts(conflicts)

    def _validate_aggregate_metrics(
        self, config: TrainDataProcessorConfig, first: DeclaredDataset, metrics: DatasetMetrics
    ) -> Conflict | None:
        from nemo_gym.datasets.processing import check_type_metrics

        path = Path(config.output_dirpath) / f"{first.type}_metrics.json"
        return check_type_metrics(first, metrics, path, overwrite=config.overwrite_metrics_conflicts)

    def _iter_dataset_lines(self, dataset: DeclaredDataset) -> Iterator[bytes]:
        from nemo_gym.datasets.rows import lines_of

        for _, line in lines_of(dataset.path):
            for _ in range(dataset.entry.num_repeats):
                yield line

    def _collate_samples_single_type(
        self, config: TrainDataProcessorConfig, datasets: list[DeclaredDataset], names: Any
    ) -> Path:
        from nemo_gym.datasets.collate import collate_type

        output = Path(config.output_dirpath) / f"{datasets[0].type}.jsonl"
        prepared = collate_type(self._config, datasets, output, config.effective_task_data_validation, names)
        for path in prepared:
            print(f"Prepared {path}")
        return output

    @property
    def _config(self) -> DictConfig:
        from nemo_gym.global_config import get_global_config_dict

        return get_global_config_dict() if self._global_config is None else self._global_config


def _banner(text: str) -> None:
    print(f"{'#' * 80}\n# {text}\n{'#' * 80}")


def __getattr__(name: str) -> Any:
    if name != "prepare_data":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is now nemo_gym.cli.dataset.{name}", DeprecationWarning, stacklevel=2)
    from nemo_gym.cli import dataset as commands

    return getattr(commands, name)
