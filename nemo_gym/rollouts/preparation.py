"""What is settled before any server is needed: the rows, the output, the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import RESULTS_DIR_KEY_NAME
from nemo_gym.config.notices import notify, quietly, warn
from nemo_gym.config.placement import Placement, placed_shards
from nemo_gym.config.roots import RESULTS_DIR
from nemo_gym.rollouts.identity import Identity
from nemo_gym.rollouts.options import EvalRunConfig
from nemo_gym.rollouts.outputs import ResultSet, dated_output
from nemo_gym.rollouts.resume import check_identity, earlier_identity, missing_for_resume
from nemo_gym.rollouts.rows import read_rows
from nemo_gym.rollouts.sources import RowFile, RowSource, choose_rows
from nemo_gym.rollouts.topology import Topology
from nemo_gym.serve.limits import check_open_files

if TYPE_CHECKING:
    from omegaconf import DictConfig

ROLLOUTS_IN_FLIGHT = 256
"""How many rollouts a command runs at once when it is not told."""

_BYTES_CHECKED = 64 << 20


def prepare(config: EvalRunConfig, global_config: DictConfig | Mapping[str, Any]) -> EvalRunConfig:
    """The run with its rows and output chosen, checked and told; nothing that exists is touched.

    Raises ConfigError for rows that aren't there or can't be read, OutputError for a place that can't be written.
    """
    output = Path(config.output_jsonl_fpath) if config.output_jsonl_fpath else _dated(config, global_config)
    results = ResultSet(output)
    bounds: dict[str, Any] = {"num_samples_in_parallel": ROLLOUTS_IN_FLIGHT}
    if not config.rollout_collection_driver:  # which may count on them
        bounds["retain_results_in_memory"] = False
    unset = {name: value for name, value in bounds.items() if name not in config.model_fields_set}
    settled = {"output_jsonl_fpath": str(output), **unset}
    _check_open_files(config.num_samples_in_parallel or ROLLOUTS_IN_FLIGHT, global_config)
    if config.resume_from_cache and not missing_for_resume(results):
        results.check_free()
        with quietly():  # it is done again, and told, once the servers are there
            identity = Identity.of_run(config, global_config)
            check_identity(results, earlier_identity(results), identity, anyway=config.resume_anyway)
        return config.model_copy(update=settled)
    source = choose_rows(global_config, config.input_jsonl_fpath or None, config.split, config.agent_name)
    results.check_free()
    if source.notice:
        notify(source.notice)
    files = _collated(source, config, global_config, results) if source.needs_collation else source.files
    results.check_apart_from(file.path for file in files)
    _check_rows(files, config.limit)
    if not config.output_jsonl_fpath:
        notify(f"No --output given: writing to {output}.")
    return config.with_rows(files, **settled)


def _check_open_files(in_flight: int, global_config: Mapping[Any, Any]) -> None:
    """Raises OpenFilesError when so many rollouts can't be in flight, and warns when servers may run short."""
    shards = len(placed_shards(global_config)) or Placement.from_config(global_config, "auto").shards
    if problem := check_open_files(in_flight, server_processes=shards):
        warn(problem)


def _dated(config: EvalRunConfig, global_config: DictConfig | Mapping[str, Any]) -> Path:
    if config.resume_from_cache:
        raise ConfigError("--resume needs --output: name the file of the run to go on with.")
    agents = Topology(global_config).agents
    name = config.agent_name or (agents[0] if len(agents) == 1 else "rollouts")
    folder = global_config.get(RESULTS_DIR_KEY_NAME) or RESULTS_DIR
    return _shown(dated_output(Path(str(folder)), name, datetime.now()))


def _shown(path: Path) -> Path:
    """Relative to the current folder where that is shorter to read."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _collated(
    source: RowSource, config: EvalRunConfig, global_config: DictConfig | Mapping[str, Any], results: ResultSet
) -> tuple[RowFile, ...]:
    from nemo_gym.datasets.processing import collate_split

    assert source.split is not None
    prepared = results.prepared / f"{source.split}.jsonl"
    if not (config.reuse_existing_data_preparation and prepared.exists()):
        prepared = collate_split(global_config, source.split, results.prepared)
    return (RowFile(prepared),)


def _check_rows(files: tuple[RowFile, ...], limit: int | None) -> None:
    """Read the rows once, at most the first 64 MiB of each file: a bad line is told before servers are started."""
    for file in files:
        size = 0
        for row in read_rows(file.path, limit):
            size += len(row.text)
            if size > _BYTES_CHECKED:
                break
