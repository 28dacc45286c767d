"""Scoring result files of several runs together."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from nemo_gym.config.errors import ConfigPathNotFoundError
from nemo_gym.config.notices import notify, warn
from nemo_gym.rollouts.aggregation import aggregate, server_of_record
from nemo_gym.rollouts.collect import Servers
from nemo_gym.rollouts.coverage import Coverage, Retried, boundary_by
from nemo_gym.rollouts.errors import IncompleteRunError, OutputError, RowError, ShardsRefusedError
from nemo_gym.rollouts.identity import differences, listed
from nemo_gym.rollouts.journal import History, journal_blocks
from nemo_gym.rollouts.options import RolloutAggregationConfig
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.records import record_line
from nemo_gym.rollouts.resume import earlier_identity
from nemo_gym.rollouts.scoring import ScoredRecords, ZeroOptions
from nemo_gym.rollouts.shard_tasks import TaskNumbering, numbering_of
from nemo_gym.rollouts.summary import Summary
from nemo_gym.rollouts.topology import Topology

_NO_SHARD_ENDINGS = ("_failures", "_materialized_inputs", "_reward_profiling", "rollout_verdicts")


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

    Returns the metrics file, None when nothing was to be scored. Raises ShardsRefusedError for files of differing runs
    or with rollouts in common unless `merge_anyway`, IncompleteRunError where completeness is required.
    """
    output = ResultSet(Path(config.output_jsonl_fpath))
    paths = shard_paths(config.input_glob)
    shards = [ResultSet(path) for path in (_apart_from(output.output, paths) if config.merge_shards else paths)]
    if config.merge_shards and output.journal.exists():
        raise OutputError(
            f"{output.output} holds the results of a run, which merging would replace: choose another --output."
        )
    with output.locked():
        try:
            return await _aggregate(config, servers, output, shards)
        except RowError as error:
            raise RowError(
                f"{error} Go on with that file's run by --resume, which keeps such lines apart and measures again what "
                "they held; or mend the line."
            ) from None


async def _aggregate(
    config: RolloutAggregationConfig, servers: Servers, output: ResultSet, shards: list[ResultSet]
) -> Path | None:
    anyway = check_shards(shards, anyway=config.merge_anyway)
    zeros = ZeroOptions(frozenset(config.count_failure_classes_as_zero), config.count_missing_rollouts_as_zero)
    topology = Topology(servers.global_config)
    group_of, boundary_of = partial(server_of_record, topology=topology), boundary_by(topology)
    records, numbering = ScoredRecords(shards, zeros, group_of, boundary_of), TaskNumbering()
    if records.duplicates.across:
        numbering = numbering_of(shards)
        for notice in numbering.notices():
            notify(notice)
        records = ScoredRecords(shards, zeros, group_of, boundary_of, numbering)
    print(f"{len(shards)} result files, {records.coverage.measured} measured rollouts")
    anyway += _check_records(records, numbering, anyway=config.merge_anyway)
    if config.merge_shards:
        _merge(ScoredRecords(shards, ZeroOptions(), group_of, numbering=numbering), output.output)
    metrics = await aggregate(records, topology, servers.client, servers.raise_for_status, output.aggregate_metrics)
    if config.merge_shards:
        print(f"Rollouts: {output.output}")
    if metrics is not None:
        print(f"Aggregate metrics: {metrics}")
    if (report := records.coverage.report()) is not None:
        print(report)
    duplicates = records.duplicates.within + records.duplicates.across
    retried = _read_journals(shards, records.books_of_sets)
    books = records.books
    Summary(output, retried, []).tell(books, duplicates=duplicates, files=len(shards), merged_anyway=anyway)
    if config.require_complete and not books.is_complete:
        raise IncompleteRunError(f"The result files are incomplete ({books.line()}).")
    return metrics


def check_shards(shards: Sequence[ResultSet], *, anyway: bool) -> list[str]:
    """How the runs that made the shards differ in servers, model or code.

    Raises ShardsRefusedError naming them unless `anyway`. Shards that don't say how they were made (from NeMo Gym 0.7,
    or merged before) are taken as they are, with a notice.
    """
    known = [(shard, identity) for shard in shards if (identity := earlier_identity(shard)) is not None]
    if 0 < len(known) < len(shards):
        silent = next(shard.output for shard in shards if shard not in [known_shard for known_shard, _ in known])
        notify(f"{len(shards) - len(known)} of the files don't say how they were made, as {silent}: taken as they are.")
    found: dict[str, Path] = {}
    for shard, identity in known[1:]:
        for line in differences(known[0][1], identity, servers_only=True):
            found.setdefault(line, shard.output)
    lines = [f"{line} ({path})" for line, path in found.items()]
    if lines and not anyway:
        raise ShardsRefusedError(
            f"The result files were made in different ways; against {known[0][0].output}:\n{listed(lines)}\nChoose "
            "files of one run, or --merge-anyway."
        )
    if lines:
        warn(f"Merging although the files were made in different ways:\n{listed(lines)}")
    return lines


def _check_records(records: ScoredRecords, numbering: TaskNumbering, *, anyway: bool) -> list[str]:
    """What is odd about the records taken together; duplicates across files are refused unless `anyway`."""
    duplicates = records.duplicates
    if duplicates.across and not anyway:
        doubt = "" if numbering.is_certain else " (different tasks need different `_ng_task_index`, see their rows)"
        raise ShardsRefusedError(
            f"{duplicates}. Leave one of the files out{doubt}, or choose --merge-anyway to score them as repeats."
        )
    if duplicates.within or duplicates.across:
        warn(f"{duplicates}. All of them are scored.")
    if records.without_indices:
        notify(
            f"{records.without_indices} records name no task or no repeat, as files of earlier versions may: they are "
            "scored as repeat 0 of task 0."
        )
    return [str(duplicates)] if duplicates.across else []


def _read_journals(shards: Sequence[ResultSet], books: Sequence[Coverage]) -> Retried:
    """What the journals say of retries; and, into the books of each shard that has one, what was never sent."""
    whole = Retried()
    for shard, coverage in zip(shards, books, strict=True):
        history = History()
        for entries in journal_blocks(shard.journal):
            history.add(entries)
        if shard.journal.exists():
            coverage.not_started = max(0, coverage.unknown - history.cut_off)
        whole = whole + history.retried
    return whole


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
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(output)
    except OSError as error:
        raise OutputError(
            f"{output} can't be written ({error.strerror}): make room, or choose another --output."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
