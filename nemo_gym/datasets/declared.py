"""The data sets a config declares, and which of them has its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from nemo_gym.config.dataset_entries import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym.config.instances import ServerInstance, server_instances
from nemo_gym.config.keys import RESOURCES_SERVERS, RESPONSES_API_AGENTS, RESPONSES_API_MODELS
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.datasets.errors import DatasetError

if TYPE_CHECKING:
    from omegaconf import DictConfig

SPLITS = ("train", "validation", "benchmark")
"""The types whose rows a run reports on; `example` rows only show that things work."""

_ENTRIES: TypeAdapter[list[DatasetConfig | BenchmarkDatasetConfig]] = TypeAdapter(
    list[DatasetConfig | BenchmarkDatasetConfig]
)


@dataclass(frozen=True)
class DeclaredDataset:
    """One entry of a server's `datasets`."""

    instance: ServerInstance
    entry: DatasetConfig | BenchmarkDatasetConfig

    @property
    def type(self) -> str:
        return self.entry.type

    @property
    def written_path(self) -> Path:
        """The path as the config has it: where files made from this data set are named after, relative to the cwd."""
        return Path(self.entry.jsonl_fpath)

    @property
    def path(self) -> Path:
        """Where its rows are read from."""
        return resolve_under_roots(self.entry.jsonl_fpath)

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    def __str__(self) -> str:
        return f"{self.entry.name} ({self.type}, declared by {self.instance.name}): {self.entry.jsonl_fpath}"


def declared_datasets(config: DictConfig | Mapping[str, Any]) -> list[DeclaredDataset]:
    """Every declared data set, in config order. Raises DatasetError for one declared on a model server."""
    found = []
    for instance in server_instances(config):
        entries = _ENTRIES.validate_python(instance.block.get("datasets") or [])
        if entries and instance.server_type == RESPONSES_API_MODELS:
            raise DatasetError(
                f"The model server `{instance.name}` declares data sets: they belong on a resources server or an agent."
            )
        if instance.server_type in (RESOURCES_SERVERS, RESPONSES_API_AGENTS):
            found += [DeclaredDataset(instance, entry) for entry in entries]
    return found


def listing(datasets: Iterable[DeclaredDataset]) -> str:
    """The data sets for a message, a line each."""
    return "\n".join(f"  {dataset}" for dataset in datasets) or "  none"
