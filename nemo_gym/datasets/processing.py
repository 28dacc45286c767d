"""The phases of preparing data sets: choose, locate, measure, collate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.config.dataset_entries import BenchmarkDatasetConfig
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import CONFIG_PATHS_KEY_NAME
from nemo_gym.config.notices import warn
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.config.routing import taskset_environment_server_name
from nemo_gym.datasets.collate import Collator, replacing
from nemo_gym.datasets.declared import DeclaredDataset, declared_datasets, listing
from nemo_gym.datasets.errors import DatasetError, DatasetMissingError, MetricsConflictError
from nemo_gym.datasets.expectations import Conflict, write_or_compare
from nemo_gym.datasets.hooks import load_task_metrics_hook
from nemo_gym.datasets.metrics import DatasetMetrics
from nemo_gym.datasets.options import TrainDataProcessorConfig
from nemo_gym.datasets.rows import RowConverter, lines_of, row_on
from nemo_gym.datasets.validation import OffendingRows, owner_directory, problem_of_row, problem_of_task
from nemo_gym.schema.episodes import is_materialized_task_row

if TYPE_CHECKING:
    from omegaconf import DictConfig

_NOT_SHOWN = {"agent", "taskset"}
_PREPARATION = {"prepare_script", "prepare_dependencies"}


def choose(config: DictConfig | Mapping[str, Any], types: Sequence[str]) -> list[DeclaredDataset]:
    """The declared data sets of these types, in config order.

    Raises DatasetError when there are none or a data set's task set has no route to an environment server.
    """
    every = declared_datasets(config)
    chosen = [dataset for dataset in every if dataset.type in types]
    if not chosen:
        raise DatasetError(f"No data sets of type {' or '.join(types)} are declared. Declared:\n{listing(every)}")
    for dataset in chosen:
        if dataset.entry.taskset is not None:
            taskset_environment_server_name(config, dataset.entry.taskset)
    return chosen


def locate(
    config: DictConfig | Mapping[str, Any], datasets: Sequence[DeclaredDataset], *, should_download: bool
) -> None:
    """Check that the files are there.

    Raises DatasetMissingError naming those that aren't, DatasetError naming the command that writes one which has a
    preparation script.
    """
    missing = [dataset for dataset in datasets if not dataset.exists]
    if not missing:
        return
    if not should_download:
        raise DatasetMissingError(
            f"Files of data sets are missing:\n{listing(missing)}\nWrite or download them first, or pass --download."
        )
    for dataset in missing:
        if dataset.entry.prepare_script is not None:
            raise DatasetError(
                f"{dataset.written_path} is written by {dataset.entry.prepare_script}. Run `gym eval prepare --config "
                f"{_declaring_file(config, dataset)}` first."
            )
    raise DatasetError(
        "Downloading data sets is not available in this version yet. Put their files where the config has them:\n"
        f"{listing(missing)}"
    )


def measure(config: DictConfig | Mapping[str, Any], dataset: DeclaredDataset) -> DatasetMetrics:
    """The figures of one data set; rows that no server could run are told and left out."""
    metrics = DatasetMetrics()
    offending = OffendingRows(dataset.path)
    hook = load_task_metrics_hook(owner_directory(config, dataset))
    converter = RowConverter(dataset)
    for number, line in lines_of(dataset.path):
        try:
            row = row_on(line, dataset.path, number)
        except DatasetError as error:
            offending.add(number, str(error))
            continue
        is_task = is_materialized_task_row(row)
        flat = row if is_task else converter.prompted(row, f"{dataset.path}, line {number}")
        problem = problem_of_task(row) if is_task else problem_of_row(flat)
        if problem is not None:
            offending.add(number, problem)
            if is_task or dataset.entry.taskset is None:
                continue
        for _ in range(dataset.entry.num_repeats):
            if is_task:
                metrics.observe_task(row["task_id"]["taskset"], row["task_input"], hook(row["task_input"]))
            else:
                metrics.observe_row(flat)
    if (report := offending.report()) is not None:
        warn(report)
    return metrics


def check_metrics_files(
    datasets: Iterable[tuple[DeclaredDataset, DatasetMetrics]], *, overwrite: bool
) -> list[Conflict]:
    """Write the metrics file of each data set, or compare the one that is there; returns the broken promises."""
    found = (
        write_or_compare(_metrics_path(dataset), {**_fields(dataset), **metrics.to_json()}, overwrite=overwrite)
        for dataset, metrics in datasets
    )
    return [conflict for conflict in found if conflict is not None]


def check_type_metrics(
    first: DeclaredDataset, metrics: DatasetMetrics, path: Path, *, overwrite: bool
) -> Conflict | None:
    """The same for the metrics of all data sets of a type, described by the first of them."""
    return write_or_compare(path, {**_fields(first), **metrics.to_json()}, overwrite=overwrite)


def raise_conflicts(conflicts: Sequence[Conflict]) -> None:
    """Raise MetricsConflictError naming every pair of files, if there are any."""
    if not conflicts:
        return
    lines = [f"  {conflict.expected} (measured now: {conflict.measured})" for conflict in conflicts]
    delete = " ".join(str(path) for conflict in conflicts for path in (conflict.expected, conflict.measured))
    raise MetricsConflictError(
        "Rows no longer measure as their metrics files say:\n" + "\n".join(lines) + "\nIf the rows are right, delete "
        f"the files ({delete}) or pass +overwrite_metrics_conflicts=true, and run again."
    )


def collate_split(config: DictConfig | Mapping[str, Any], split: str, folder: Path) -> Path:
    """Collate the data sets of one split for a run: `<folder>/<split>.jsonl`. Nothing is written beside the sources."""
    datasets = choose(config, [split])
    locate(config, datasets, should_download=True)
    options = {"output_dirpath": str(folder), "mode": "train_preparation"}
    validation = config.get("task_data_validation") or "auto"
    check = TrainDataProcessorConfig.model_validate({**options, "task_data_validation": validation})
    collator = Collator(config, check.effective_task_data_validation)
    output = folder / f"{split}.jsonl"
    with replacing(output) as file:
        for dataset in datasets:
            collator.write(dataset, file)
    return output


def _metrics_path(dataset: DeclaredDataset) -> Path:
    path = dataset.written_path
    return path.with_name(f"{path.stem}_metrics.json")


def _fields(dataset: DeclaredDataset) -> dict[str, Any]:
    entry = dataset.entry
    hidden = _NOT_SHOWN if isinstance(entry, BenchmarkDatasetConfig) else _NOT_SHOWN | _PREPARATION
    return {name: value for name, value in entry.model_dump(mode="json").items() if name not in hidden}


def _declaring_file(config: DictConfig | Mapping[str, Any], dataset: DeclaredDataset) -> str:
    """The config file that declares a data set, as far as that can be seen; a placeholder otherwise."""
    for name in config.get(CONFIG_PATHS_KEY_NAME) or ():
        with suppress(OSError, UnicodeDecodeError, ConfigError):
            text = resolve_under_roots(str(name)).read_text(encoding="utf-8")
            if str(dataset.entry.prepare_script) in text and dataset.entry.name in text:
                return str(name)
    return "<the file that declares it>"
