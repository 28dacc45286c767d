"""Benchmarks: what a config file of one says, and all that can be found."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel

from nemo_gym.cli._compat import moved_attr_getter
from nemo_gym.config.catalog import benchmark_files, benchmark_name
from nemo_gym.config.environment_servers import environment_servers_by_agent
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import component_search_roots
from nemo_gym.config.routing import resolve_dataset_agent, taskset_environment_server_name
from nemo_gym.config_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym.datasets.declared import DeclaredDataset, declared_datasets
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

__all__ = ["BenchmarkConfig", "discover_benchmarks"]

__getattr__ = moved_attr_getter(
    __name__, dict.fromkeys(("list_benchmarks", "PrepareBenchmarkConfig", "prepare_benchmark"), "nemo_gym.cli.eval")
)


class BenchmarkConfig(BaseModel):
    """A benchmark as its composed config describes it. `agent_name` is None where several agents may answer."""

    name: str
    path: Path
    agent_name: str | None
    num_repeats: int
    dataset: BenchmarkDatasetConfig | DatasetConfig
    environment_server: str | None = None

    @classmethod
    def from_config_path(cls, config_path: Path, *, strict: bool = True) -> Self | None:
        """The benchmark that a config file declares; see `from_initial_config_dict`."""
        return cls.from_initial_config_dict(
            config_path, OmegaConf.create({"config_paths": [str(config_path)]}), strict=strict
        )

    @classmethod
    def from_initial_config_dict(
        cls, path: Path, initial_config_dict: DictConfig, *, strict: bool = True
    ) -> Self | None:
        """The benchmark of a config, composed without command line, env.yaml or model; `path` gives its name.

        Raises ConfigError when the config is wrong or doesn't declare exactly one benchmark. Without `strict` that is a
        warning, and None.
        """
        try:
            return cls._of(Path(path), initial_config_dict)
        except (ConfigError, ValueError) as error:
            if strict:
                raise
            warnings.warn(f"{path} is left out: {error}", stacklevel=2)
            return None

    @classmethod
    def _of(cls, path: Path, initial_config_dict: DictConfig) -> Self:
        no_model = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
        config = GlobalConfigDictParser().parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=OmegaConf.merge(no_model, initial_config_dict),
                skip_load_from_cli=True,
                skip_load_from_dotenv=True,
                offline=True,
            )
        )
        dataset = _only_benchmark(path, declared_datasets(config))
        entry, instance = dataset.entry, dataset.instance.name
        pin = getattr(entry, "agent", None)
        agent = resolve_dataset_agent(config, instance, pin, taskset=entry.taskset)
        return cls(
            name=_name_of(path),
            path=path,
            agent_name=agent,
            num_repeats=entry.num_repeats,
            dataset=entry,
            environment_server=_environment_server(config, agent, entry.taskset),
        )


def discover_benchmarks() -> dict[str, BenchmarkConfig]:
    """Every benchmark below `benchmarks/` of the search roots, by name; those that can't be composed are warned of."""
    found = {name: BenchmarkConfig.from_config_path(path, strict=False) for name, path in benchmark_files().items()}
    return {name: benchmark for name, benchmark in sorted(found.items()) if benchmark is not None}


def _only_benchmark(path: Path, datasets: list[DeclaredDataset]) -> DeclaredDataset:
    benchmarks = [dataset for dataset in datasets if dataset.type == "benchmark"]
    candidates = benchmarks or [dataset for dataset in datasets if dataset.entry.prepare_script is not None]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise ConfigError(f"{path} declares no data set of type `benchmark`.")
    names = ", ".join(dataset.entry.name for dataset in candidates)
    raise ConfigError(f"{path} is a suite of several benchmarks ({names}), not one.")


def _name_of(path: Path) -> str:
    for root in component_search_roots():
        tree = (root / "benchmarks").resolve()
        if path.resolve().is_relative_to(tree):
            return benchmark_name(path.resolve().relative_to(tree))
    return path.parent.name if path.stem == "config" else path.stem


def _environment_server(config: DictConfig, agent: str | None, taskset: str | None) -> str | None:
    """The server the rows go to: the taskset's route, else the only one that names the agent."""
    if taskset is not None:
        return taskset_environment_server_name(config, taskset)
    plain: Any = OmegaConf.to_container(config, resolve=False)
    servers = environment_servers_by_agent(plain).get(agent or "", [])
    return servers[0] if len(servers) == 1 else None
