"""Whether rollouts can be trusted: checks of what was recorded of them, apart from their rewards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from nemo_gym.health.engine import evaluate_files, tasks_of
from nemo_gym.health.errors import HealthCheckError
from nemo_gym.health.models import (
    CheckInput,
    CheckScope,
    CheckSpec,
    CheckSubject,
    Finding,
    HealthCheckResult,
    RolloutDigest,
    Verdict,
)
from nemo_gym.health.registry import CHECK_REGISTRY, normalize_ignored_checks
from nemo_gym.health.report import files_in, format_health_report, summary_of, write_report

__all__ = [
    "CHECK_REGISTRY",
    "CheckInput",
    "CheckScope",
    "CheckSpec",
    "CheckSubject",
    "Finding",
    "HealthCheckError",
    "HealthCheckResult",
    "RolloutDigest",
    "Verdict",
    "format_health_report",
    "health_check_run_dir",
    "normalize_ignored_checks",
    "run_health_checks",
]

DEFAULT_ROLLOUTS_FILE = "rollouts.jsonl"


def run_health_checks(
    rollout_paths: Path | Sequence[Path],
    *,
    output_dir: Path | None = None,
    workers: int | None = None,
    ignored_checks: Sequence[str] = (),
    run: str | None = None,
) -> HealthCheckResult:
    """Check all records of files of one run, and write `quality_summary.json` and `rollout_verdicts.jsonl`.

    They go to `output_dir`, by default beside the first file. With `run` they are written under names that begin with
    `<run>_` too, and those are the paths of the result. `workers` processes share the work; None is up to eight.
    Raises HealthCheckError (a ValueError) for an unknown check or a file that can't be read.
    """
    paths = [Path(rollout_paths)] if isinstance(rollout_paths, str | Path) else [Path(path) for path in rollout_paths]
    ignored = normalize_ignored_checks(ignored_checks)
    if not paths:
        raise HealthCheckError("There is no file of rollouts to check.")
    rollouts = evaluate_files(paths, workers, frozenset(ignored))
    summary = summary_of(paths, rollouts, tasks_of(rollouts, ignored), ignored)
    result = HealthCheckResult(summary, rollouts, *files_in(Path(output_dir) if output_dir else paths[0].parent, run))
    write_report(result)
    return result


def health_check_run_dir(
    run_dir: Path,
    *,
    rollouts_file: Path | str | None = None,
    workers: int | None = None,
    ignored_checks: str | Iterable[str] = (),
) -> HealthCheckResult:
    """Check a run's folder: its `rollouts.jsonl`, or the file given, which may be relative to it.

    Raises HealthCheckError (a ValueError) when folder or file are not there.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise HealthCheckError(f"There is no folder {folder}.")
    path = folder / (rollouts_file or DEFAULT_ROLLOUTS_FILE)
    if not path.is_file():
        raise HealthCheckError(f"There is no file {path}: name the rollouts with --rollouts-file.")
    ignored = normalize_ignored_checks(ignored_checks)
    return run_health_checks(path, output_dir=folder, workers=workers, ignored_checks=ignored)
