"""Checking whole files: lines in parallel, then what only shows when they are put together."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.health.errors import HealthCheckError
from nemo_gym.health.evaluation import Place, evaluate_lines, places_in
from nemo_gym.health.models import Finding, RolloutDigest, TaskIndex, Verdict
from nemo_gym.health.registry import CONSISTENTLY_UNHEALTHY, DUPLICATE, NO_SUCCESSFUL_CALLS

MAX_WORKERS = 8
_SMALL_RECORDS = 1 << 15
_SMALL_BYTES = 1 << 27
"""Starting processes takes as long as checking this much."""
_PER_CHUNK = 64


@dataclass(frozen=True)
class Task:
    """The repeats of a task: verdicts of each (duplicates as one), and what the task's checks say."""

    index: TaskIndex
    verdicts: list[Verdict]
    flags: list[str]
    unobserved: list[str]


def evaluate_files(paths: Sequence[Path], workers: int | None, ignored: Collection[str]) -> list[RolloutDigest]:
    """Every record of the files with what is found about it, in the order of (task, repeat, stage).

    Raises HealthCheckError for a file that can't be read.
    """
    chunks = [
        (source, path, places[start : start + _PER_CHUNK])
        for source, path in enumerate(paths)
        for places in [_places(path)]
        for start in range(0, len(places), _PER_CHUNK)
    ]
    digests = list(_evaluated(chunks, workers, ignored))
    if DUPLICATE not in ignored:
        _flag_duplicates(digests)
    return sorted(digests, key=_order)


def tasks_of(digests: Sequence[RolloutDigest], ignored: Collection[str]) -> list[Task]:
    """The tasks in the order of their rollouts."""
    by_task: dict[TaskIndex, dict[object, list[RolloutDigest]]] = {}
    for digest in digests:
        key = digest.identity if digest.rollout_index is not None else (digest.source, digest.line)
        by_task.setdefault(digest.task_index, {}).setdefault(key, []).append(digest)
    return [_task(index, list(repeats.values()), ignored) for index, repeats in by_task.items()]


def _places(path: Path) -> list[Place]:
    try:
        return places_in(path)
    except OSError as error:
        raise HealthCheckError(f"The rollouts {path} can't be read: {error.strerror}.") from error


_Chunk = tuple[int, Path, list[Place]]


def _evaluated(chunks: list[_Chunk], workers: int | None, ignored: Collection[str]) -> Iterator[RolloutDigest]:
    records = sum(len(places) for _, _, places in chunks)
    size = sum(path.stat().st_size for path in {path for _, path, _ in chunks})
    is_small = records < _SMALL_RECORDS and size < _SMALL_BYTES
    count = _worker_count(records, len(chunks), 1 if is_small and workers is None else workers)
    if count > 1:
        try:
            yield from _in_processes(chunks, count, ignored)
            return
        except (BrokenProcessPool, OSError) as error:
            warnings.warn(f"health checks go on in one process: {error}", RuntimeWarning, stacklevel=2)
    for source, path, places in chunks:
        yield from evaluate_lines(source, path, places, ignored)


def _in_processes(chunks: list[_Chunk], count: int, ignored: Collection[str]) -> list[RolloutDigest]:
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        sources, paths, places = zip(*chunks, strict=True)
        results = pool.map(evaluate_lines, sources, paths, places, [frozenset(ignored)] * len(chunks))
        return [digest for digests in results for digest in digests]


def _worker_count(records: int, chunks: int, workers: int | None) -> int:
    """As many as asked for, else one for each CPU up to a limit."""
    if workers is not None and workers < 1:
        raise HealthCheckError(f"workers must be at least 1, not {workers}.")
    if records <= 1:
        return 1
    return min(workers or min(os.cpu_count() or 1, MAX_WORKERS), chunks) if workers != 1 else 1


def _flag_duplicates(digests: Sequence[RolloutDigest]) -> None:
    counts = Counter(digest.identity for digest in digests if digest.rollout_index is not None)
    for digest in digests:
        if digest.rollout_index is not None and (count := counts[digest.identity]) > 1:
            digest.findings.append(Finding(DUPLICATE, {"duplicate_count": count}))


def _task(index: TaskIndex, repeats: list[list[RolloutDigest]], ignored: Collection[str]) -> Task:
    verdicts = [_collapsed(copies) for copies in repeats]
    known = [verdict for verdict in verdicts if verdict is not Verdict.UNOBSERVED]
    digests = [digest for copies in repeats for digest in copies]
    are_calls_known = all(digest.policy_calls is not None for digest in digests)
    is_flagged = {
        CONSISTENTLY_UNHEALTHY: len(known) >= 2 and all(verdict is Verdict.UNHEALTHY for verdict in known),
        NO_SUCCESSFUL_CALLS: are_calls_known
        and all(digest.policy_calls and not digest.successful_policy_calls for digest in digests),
    }
    is_observed = {CONSISTENTLY_UNHEALTHY: len(known) >= 2, NO_SUCCESSFUL_CALLS: are_calls_known}
    return Task(
        index,
        verdicts,
        [check for check, flagged in is_flagged.items() if flagged and check not in ignored],
        [check for check, observed in is_observed.items() if not observed and check not in ignored],
    )


def _collapsed(copies: list[RolloutDigest]) -> Verdict:
    verdicts = {digest.verdict for digest in copies}
    return verdicts.pop() if len(verdicts) == 1 else Verdict.UNOBSERVED


def _order(digest: RolloutDigest) -> tuple[object, ...]:
    keys = (digest.task_index, digest.rollout_index, digest.stage_index)
    return (*(_rank(key) for key in keys), digest.source, digest.line)


def _rank(key: TaskIndex | None) -> tuple[int, int, str]:
    """Integers before text before nothing."""
    if isinstance(key, int):
        return 0, key, ""
    return (2, 0, "") if key is None else (1, 0, key)
