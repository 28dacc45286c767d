"""The summary of a health check, its files, and a few lines to read."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.health.engine import Task
from nemo_gym.health.models import CheckScope, HealthCheckResult, RolloutDigest, Verdict
from nemo_gym.health.registry import CHECK_REGISTRY
from nemo_gym.results.errors import ResultsFileError
from nemo_gym.results.jsonl import replacing, write_lines

SUMMARY_NAME = "quality_summary.json"
VERDICTS_NAME = "rollout_verdicts.jsonl"


def summary_of(
    files: Sequence[Path], digests: Sequence[RolloutDigest], tasks: Sequence[Task], ignored: Sequence[str]
) -> dict[str, Any]:
    """The content of `quality_summary.json` about the rollouts of these files."""
    verdicts = Counter(digest.verdict for digest in digests)
    return {
        "run": {
            "files": [path.name for path in files],
            "ignored_checks": list(ignored),
            "artifacts": {
                "records": len(digests),
                "captures": sum(digest.statistics.has_calls for digest in digests),
                "coverage": _coverage(digests, tasks, ignored),
            },
            "verdicts": {verdict.value: verdicts[verdict] for verdict in Verdict},
            "issues": _issues(digests, tasks),
            "stats": _statistics(digests),
        },
        "tasks": {str(task.index): _task_entry(task) for task in tasks},
    }


def write_report(result: HealthCheckResult) -> None:
    """Write both files, also under the names without a run's that other tools look for.

    Raises ResultsFileError when they can't be written.
    """
    result.summary_path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(result.summary_path) as file:
        file.write(orjson.dumps(result.summary, option=orjson.OPT_INDENT_2))
    write_lines(result.verdicts_path, (digest.to_json() for digest in result.rollouts))
    plain = files_in(result.summary_path.parent)
    for path, other in zip((result.summary_path, result.verdicts_path), plain, strict=True):
        if path != other:
            _give_second_name(path, other)


def files_in(folder: Path, run: str | None = None) -> tuple[Path, Path]:
    """Where summary and verdicts of a run are; without its name, of the last one whose results are in the folder."""
    prefix = "" if run is None else f"{run}_"
    return folder / f"{prefix}{SUMMARY_NAME}", folder / f"{prefix}{VERDICTS_NAME}"


def _give_second_name(path: Path, other: Path) -> None:
    temporary = other.with_name(f".{other.name}.{os.getpid()}.tmp")
    try:
        try:
            temporary.hardlink_to(path)
        except OSError:
            shutil.copyfile(path, temporary)
        temporary.replace(other)
    except OSError as error:
        raise ResultsFileError(f"can't write {other}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def format_health_report(result: HealthCheckResult) -> str:
    """Two lines for a person, and a third where rollouts could not be judged; one where there was nothing to see."""
    run = result.summary["run"]
    ignored = f" (ignored: {', '.join(run['ignored_checks'])})" if run["ignored_checks"] else ""
    if _is_unobservable(run):
        return (
            f"Health: {run['artifacts']['records']} rollouts checked, nothing wrong in their records{ignored}; model "
            "calls were not captured (observability_enabled), so there is no more to tell."
        )
    counts = ", ".join(f"{run['verdicts'][verdict]} {verdict}" for verdict in Verdict)
    lines = [
        f"Health: {run['artifacts']['records']} rollouts checked, {counts}{ignored}.",
        f"Summary: {result.summary_path}",
    ]
    if run["verdicts"][Verdict.UNOBSERVED] and not run["artifacts"]["captures"]:
        lines.append("Unobserved: model calls were not recorded; set observability_enabled and model_call_capture_dir.")
    return "\n".join(lines)


def _is_unobservable(run: dict[str, Any]) -> bool:
    verdicts = run["verdicts"]
    seen = verdicts[Verdict.HEALTHY] or verdicts[Verdict.UNHEALTHY] or run["artifacts"]["captures"]
    return bool(run["artifacts"]["records"] and not seen)


def _coverage(
    digests: Sequence[RolloutDigest], tasks: Sequence[Task], ignored: Collection[str]
) -> dict[str, dict[str, int]]:
    unobserved: Counter[str] = Counter()
    for digest in digests:
        unobserved.update(digest.unobserved)
    for task in tasks:
        unobserved.update(task.unobserved)
    coverage = {}
    for id, spec in CHECK_REGISTRY.items():
        total = len(digests) if spec.scope is CheckScope.ROLLOUT else len(tasks)
        skipped = total if id in ignored else 0
        missed = 0 if id in ignored else unobserved[id]
        coverage[id] = {"evaluated": total - skipped - missed, "unobserved": missed, "ignored": skipped}
    return coverage


def _issues(digests: Sequence[RolloutDigest], tasks: Sequence[Task]) -> dict[str, int]:
    counts = Counter(finding.check for digest in digests for finding in digest.findings)
    counts.update(flag for task in tasks for flag in task.flags)
    return {id: counts[id] for id in CHECK_REGISTRY if counts[id]}


def _statistics(digests: Sequence[RolloutDigest]) -> dict[str, Any]:
    by_status: Counter[str] = Counter()
    for digest in digests:
        by_status.update(digest.statistics.failed_by_status)
    every = [digest.statistics for digest in digests]
    return {
        "model_call_errors": {
            "total": by_status.total(),
            "by_status": dict(sorted(by_status.items())),
            "rollouts_affected": sum(bool(one.failed_by_status) for one in every),
            "ended_on_error": sum(one.ended_on_error for one in every),
        },
        "duplicated_calls": {
            "replayed": sum(one.replayed for one in every),
            "rollouts": sum(bool(one.replayed) for one in every),
        },
        "tokens": {
            "prompt": sum(one.prompt for one in every),
            "completion": sum(one.completion for one in every),
            "capture_prompt": sum(one.capture_prompt for one in every),
            "capture_completion": sum(one.capture_completion for one in every),
        },
    }


def _task_entry(task: Task) -> dict[str, Any]:
    counts = Counter(task.verdicts)
    return {
        "repeats": len(task.verdicts),
        **{verdict.value: counts[verdict] for verdict in Verdict},
        "flags": task.flags,
    }
