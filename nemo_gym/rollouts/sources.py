"""Which rows a run uses: a given file, a split, or what the environment ships."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from nemo_gym.config.errors import ConfigError, ConfigPathNotFoundError
from nemo_gym.config.hints import enumeration
from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.roots import component_search_roots, resolve_under_roots
from nemo_gym.datasets.declared import SPLITS, DeclaredDataset, declared_datasets, listing
from nemo_gym.rollouts.errors import RoutingError
from nemo_gym.rollouts.materialise import SourceRow
from nemo_gym.rollouts.routing import agent_for_source
from nemo_gym.rollouts.rows import read_rows
from nemo_gym.rollouts.topology import Topology

if TYPE_CHECKING:
    from omegaconf import DictConfig

EXAMPLE = "example"


@dataclass(frozen=True)
class RowFile:
    """A file of rows; `dataset` when its rows are to be used as that data set is declared."""

    path: Path
    dataset: DeclaredDataset | None = None


@dataclass(frozen=True)
class RowSource:
    """The files a run reads, or the split whose data sets are collated into one first.

    `notice` tells what was chosen where the user left it open.
    """

    files: tuple[RowFile, ...] = ()
    split: str | None = None
    notice: str | None = None

    @property
    def needs_collation(self) -> bool:
        return self.split in SPLITS


def choose_rows(
    config: DictConfig | Mapping[str, Any], input: str | None, split: str | None, agent: str | None = None
) -> RowSource:
    """`--input`, else `--split`, else the only split whose file exists, else the shipped example rows.

    `agent` is the one asked for: where it has data sets of its own, only those count. Raises
    ConfigPathNotFoundError for a missing file, ConfigError when the config declares nothing that fits.
    """
    if input:
        if split:
            raise ConfigError("--input and --split exclude each other: drop one of them.")
        return RowSource((RowFile(existing_input(input)),))
    datasets = _meant_for(agent, config, declared_datasets(config))
    own_files = environment_files(config)
    if split is not None:
        return _of_split(datasets, split)
    present = [name for name in SPLITS if any(dataset.type == name and dataset.exists for dataset in datasets)]
    if len(present) == 1:
        return RowSource(split=present[0], notice=f"Using {_described(_existing(datasets, present[0]))}.")
    examples = _existing(datasets, EXAMPLE)
    if not examples and not datasets and own_files:
        raise ConfigError(
            f"{enumeration(list(own_files.values()))} has no tasks: give `Environment(tasks=[…])` some, or name a file "
            "of rows by --input."
        )
    if not examples:
        raise ConfigError(
            "No rows to run: name a file by --input, or a split by --split. Declared data sets:\n" + listing(datasets)
        )
    others = f"; --split chooses {enumeration(present)} rows instead" if present else ""
    return RowSource(
        tuple(RowFile(dataset.path, dataset) for dataset in examples),
        split=EXAMPLE,
        notice=f"Neither --input nor --split given: using {_shipped(examples, own_files, config)}{others}.",
    )


def environment_files(config: DictConfig | Mapping[str, Any]) -> dict[str, str]:
    """Of the resources servers that serve an environment in one file: that file, by their names."""
    servers = Topology(config).of_type(RESOURCES_SERVERS)
    return {server.name: _shown(str(file)) for server in servers if (file := server.block.get("source_file"))}


def existing_input(path: str) -> Path:
    """An input file under the search roots. Raises ConfigPathNotFoundError naming the places looked in."""
    found = resolve_under_roots(Path(path).expanduser(), validator=Path.is_file)
    if found.is_file():
        return found
    if found.is_dir():
        raise ConfigPathNotFoundError(f"--input {path} is a folder: it must name a file of JSON lines.")
    places = [str(root) for root in component_search_roots()] if not Path(path).is_absolute() else []
    looked = f" Looked in {enumeration(places)}." if places else ""
    raise ConfigPathNotFoundError(f"--input {path} does not exist.{looked}")


def source_rows(
    config: DictConfig | Mapping[str, Any], files: tuple[RowFile, ...], limit: int | None
) -> Iterator[SourceRow]:
    """The rows of the files in order, at most `limit` of them in all when it is given and not 0."""
    yield from islice((row for file in files for row in _rows_of(config, file, limit)), limit or None)


class FallbackAgent:
    """The agent of rows that name none: the one whose config declares their file, else the only agent there is."""

    def __init__(self, config: DictConfig | Mapping[str, Any], files: Callable[[], tuple[RowFile, ...]]) -> None:
        self._config = config
        self._files = files
        self._agent: str | None = None

    def __call__(self) -> str:
        """Raises RoutingError naming the agents when there are several."""
        if self._agent is None:
            self._agent = self._find()
        return self._agent

    def _find(self) -> str:
        used = {file.path.resolve() for file in self._files()}
        declaring = {
            dataset.instance.name for dataset in declared_datasets(self._config) if dataset.path.resolve() in used
        }
        agents = {agent_for_source(self._config, name) for name in declaring} or set(Topology(self._config).agents)
        if len(agents) == 1:
            return next(iter(agents))
        if not agents:
            raise RoutingError("The config has no agent that could run the rows.")
        raise RoutingError(
            f"The rows name no agent and there are several: choose one by --agent ({enumeration(sorted(agents))})."
        )


def _rows_of(config: DictConfig | Mapping[str, Any], file: RowFile, limit: int | None) -> Iterator[SourceRow]:
    if file.dataset is None:
        for row in read_rows(file.path, limit):
            yield SourceRow(row.place, row.text, row.fields)
        return
    from nemo_gym.datasets.rows import RowConverter

    converter = RowConverter(file.dataset)
    for index, row in enumerate(read_rows(file.path, limit)):
        fields = converter.convert(row.fields, row.place, index)
        yield SourceRow(row.place, orjson.dumps(fields, option=orjson.OPT_SORT_KEYS), fields)


def _meant_for(
    agent: str | None, config: DictConfig | Mapping[str, Any], datasets: list[DeclaredDataset]
) -> list[DeclaredDataset]:
    """The data sets of the agent that was asked for, when it has any of its own."""
    server = Topology(config).get(agent) if agent is not None else None
    if server is None:
        return datasets
    own = [dataset for dataset in datasets if dataset.instance.name in (server.name, server.resources_server)]
    return own or datasets


def _of_split(datasets: list[DeclaredDataset], split: str) -> RowSource:
    if split not in (*SPLITS, EXAMPLE):
        raise ConfigError(f"There is no split `{split}`: choose {enumeration([*SPLITS, EXAMPLE])}.")
    declared = [dataset for dataset in datasets if dataset.type == split]
    if not declared:
        raise ConfigError(f"No data set of the split `{split}` is declared. Declared:\n{listing(datasets)}")
    if split != EXAMPLE:
        return RowSource(split=split)
    if missing := [dataset for dataset in declared if not dataset.exists]:
        raise ConfigPathNotFoundError(f"Example rows are missing:\n{listing(missing)}")
    return RowSource(tuple(RowFile(dataset.path, dataset) for dataset in declared), split=split)


def _existing(datasets: list[DeclaredDataset], kind: str) -> list[DeclaredDataset]:
    return [dataset for dataset in datasets if dataset.type == kind and dataset.exists]


def _shipped(
    datasets: list[DeclaredDataset], own_files: Mapping[str, str], config: DictConfig | Mapping[str, Any]
) -> str:
    """Example rows; those of an environment in one file are its tasks, and their copy is nobody's business."""
    topology = Topology(config)
    declaring = (topology.get(dataset.instance.name) for dataset in datasets)
    files = [own_files.get(server.resources_server or server.name) for server in declaring if server is not None]
    if not files or None in files:
        return f"the shipped {_described(datasets)}"
    count = sum(_line_count(dataset.path) for dataset in datasets)
    return f"the {'task' if count == 1 else f'{count} tasks'} of {enumeration([file for file in files if file])}"


def _shown(file: str) -> str:
    """A path relative to the current folder where it is in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _described(datasets: list[DeclaredDataset]) -> str:
    rows = sum(_line_count(dataset.path) for dataset in datasets)
    files = enumeration(list(dict.fromkeys(str(dataset.entry.jsonl_fpath) for dataset in datasets)))
    return f"{rows} {datasets[0].type} rows of {files}"


def _line_count(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())
