"""Scoring result files of several runs together."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from nemo_gym.config.errors import ConfigPathNotFoundError
from nemo_gym.config.notices import notify
from nemo_gym.rollouts.aggregation import aggregate, server_of_record
from nemo_gym.rollouts.collect import Servers
from nemo_gym.rollouts.errors import OutputError
from nemo_gym.rollouts.options import RolloutAggregationConfig
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.records import record_line
from nemo_gym.rollouts.scoring import ScoredRecords, ZeroOptions
from nemo_gym.rollouts.topology import Topology

_NO_SHARD_ENDINGS = ("_failures", "_materialized_inputs", "_reward_profiling")


def shard_paths(globs: str) -> list[Path]:
    """The files that comma-separated globs name, each once; side files are left out.

    Raises ConfigPathNotFoundError when there are none.
    """
    patterns = [pattern.strip() for pattern in globs.split(",") if pattern.strip()]
    found = (Path(name) for pattern in patterns for name in sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207
    shards = [path for path in dict.fromkeys(found) if path.is_file() and not path.stem.endswith(_NO_SHARD_ENDINGS)]
    if not shards:
        raise ConfigPathNotFoundError(f"No result files match --input-glob {globs}.")
    return shards


async def aggregate_shards(config: RolloutAggregationConfig, servers: Servers) -> Path | None:
    """Merge the shards, compute their metrics on the running servers and print where everything is.

    Returns the metrics file, None when nothing was to be scored.
    """
    output = ResultSet(Path(config.output_jsonl_fpath))
    paths = shard_paths(config.input_glob)
    shards = [ResultSet(path) for path in (_apart_from(output.output, paths) if config.merge_shards else paths)]
    output.check_writable()
    zeros = ZeroOptions(frozenset(config.count_failure_classes_as_zero), config.count_missing_rollouts_as_zero)
    topology = Topology(servers.global_config)
    group_of = partial(server_of_record, topology=topology)
    records = ScoredRecords(shards, zeros, group_of)
    print(f"{len(shards)} result files, {records.coverage.measured} measured rollouts")
    if config.merge_shards:
        _merge(ScoredRecords(shards, ZeroOptions(), group_of), output.output)
    metrics = await aggregate(records, topology, servers.client, servers.raise_for_status, output.aggregate_metrics)
    if config.merge_shards:
        print(f"Rollouts: {output.output}")
    if metrics is not None:
        print(f"Aggregate metrics: {metrics}")
    if (report := records.coverage.report()) is not None:
        print(report)
    return metrics


def _apart_from(output: Path, paths: list[Path]) -> list[Path]:
    """The shards without an earlier merger of them. Raises OutputError when nothing else is left."""
    left = [path for path in paths if not (output.exists() and path.samefile(output))]
    if not left:
        raise OutputError(
            f"{output} is the only file to merge and would be replaced: choose another --output, or pass "
            "+merge_shards=false to compute its metrics alone."
        )
    if len(left) < len(paths):
        notify(f"{output} is where the merged records go: it isn't read.")
    return left


def _merge(records: Iterable[dict[str, object]], output: Path) -> None:
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for record in records:
                file.write(record_line(record) + b"\n")
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
