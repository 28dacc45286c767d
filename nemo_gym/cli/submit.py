"""`gym eval submit`: jobs on a cluster or here, from one YAML file."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.errors import UsageError

if TYPE_CHECKING:
    from nemo_gym.orchestration.api import SubmitConfig
    from nemo_gym.orchestration.jobs import SubmissionRecord

_OF_THE_COMMAND = ("+json=true", "+verbose=true")


def submit(path: str | None, overrides: Sequence[str], *, dry_run: bool, resolve_only: bool, as_json: bool) -> None:
    """Check the file, then submit; `dry_run` prints the scripts instead, `resolve_only` the config.

    Ends with 1 when a benchmark was refused; the others are submitted.
    """
    from nemo_gym.orchestration.checks import check
    from nemo_gym.orchestration.loading import load_submit_config

    if path is None:
        raise UsageError("missing --config FILE: the submit config.")
    if dry_run and resolve_only:
        raise UsageError("--dry-run and --resolve-only exclude each other.")
    config = load_submit_config(Path(path), [token for token in overrides if token not in _OF_THE_COMMAND])
    if resolve_only:
        _print_config(config, as_json=as_json)
        return
    for warning in check(config, os.environ):
        print(f"Warning: {warning}", file=sys.stderr)
    if dry_run:
        _print_scripts(config, as_json=as_json)
        return
    _submit(config, as_json=as_json)


def _print_config(config: "SubmitConfig", *, as_json: bool) -> None:
    from nemo_gym.orchestration.showing import shown

    _print_data(shown(config), as_json=as_json)


def _print_data(data: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(data, indent=2))
        return
    import yaml

    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")


def _print_scripts(config: "SubmitConfig", *, as_json: bool) -> None:
    """Every file that a submission would write, but for those of secret values: of these, the names."""
    from nemo_gym.orchestration.submission import files_of, plan_of

    plan = plan_of(config, os.environ)
    private = {f"{job.benchmark}/{path}" for job in plan.jobs for path in job.private_files()}
    files = {path: None if path in private else text for path, (text, _) in files_of(plan, config).items()}
    if as_json:
        print(json.dumps({"run_dir": plan.run_dir, "files": files}, indent=2))
        return
    print(f"Run directory: {plan.run_dir}")
    for path, text in files.items():
        print(f"\n=== {path}{'' if text else ' (values of variables; not shown)'}")
        if text:
            print(text, end="")


def _submit(config: "SubmitConfig", *, as_json: bool) -> None:
    from nemo_gym.orchestration.submission import submit as hand_over

    record, warnings = hand_over(config, os.environ)
    for warning in warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    if as_json:
        print(record.text(), end="")
    else:
        _print_record(record)
    if record.failed:
        refused = ", ".join(one.benchmark for one in record.failed)
        print(f"Error: not submitted: {refused}.", file=sys.stderr)
        raise SystemExit(1)


def _print_record(record: "SubmissionRecord") -> None:
    kind = "Slurm job" if record.executor == "slurm" else "job"
    print(f"Run directory: {record.run_dir}")
    for one in record.benchmarks:
        print(f"{one.benchmark}: " + (f"submitted → {kind} {one.job_id}" if one.job_id else f"failed: {one.error}"))
    print(f"Follow it with `gym jobs status {record.gym_job_id}`.")
