"""`gym eval submit` and `gym jobs …`."""

import argparse
from argparse import Namespace
from dataclasses import dataclass

from nemo_gym.cli.commands.command import Command
from nemo_gym.cli.commands.flag_sets import JSON
from nemo_gym.cli.flags import Flag, SwitchFlag, Words


@dataclass(frozen=True, kw_only=True)
class OwnFlag(Flag):
    """A value for the command itself: it stands for no override."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar=self.metavar)


def _submit(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.submit import submit

    submit(args.config, overrides, dry_run=args.dry_run, resolve_only=args.resolve_only, as_json=args.json)


def _refuse(overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    given = [token for token in overrides if token not in ("+json=true", "+verbose=true")]
    if given:
        raise UsageError(
            f"takes no override, and {given[0].partition('=')[0]}= is one: it reads records, not a config."
        )


def _list(args: Namespace, overrides: list[str]) -> None:
    _refuse(overrides)
    from nemo_gym.cli.jobs import list_jobs

    list_jobs(as_json=args.json)


def _status(args: Namespace, overrides: list[str]) -> None:
    _refuse(overrides)
    from nemo_gym.cli.jobs import status

    status(args.job, as_json=args.json)


def _cancel(args: Namespace, overrides: list[str]) -> None:
    _refuse(overrides)
    from nemo_gym.cli.jobs import cancel

    cancel(args.job, args.benchmark)


def _logs(args: Namespace, overrides: list[str]) -> None:
    _refuse(overrides)
    from nemo_gym.cli.jobs import logs

    logs(args.job, args.benchmark, args.step, follow=args.follow)


_JOB = Words(names=("job",), metavar="JOB", help="a submission: its id, an end of it, or its folder; else the newest")
_ONE_JOB = Words(names=("job",), metavar="JOB", help="a submission: its id, an end of it, or its folder")
_BENCHMARK = OwnFlag(names=("--benchmark",), metavar="NAME", help="only this one of its benchmarks")

SUBMIT = {
    "eval submit": Command(
        _submit,
        "run benchmarks with their model servers as jobs of a Slurm cluster, or here",
        (
            OwnFlag(names=("--config", "-c"), metavar="FILE", help="the submit config, a YAML file"),
            SwitchFlag(names=("--dry-run",), help="print the scripts and submit nothing"),
            SwitchFlag(names=("--resolve-only",), help="print the checked config and submit nothing"),
            JSON,
        ),
        example="gym eval submit --config submit.yaml --dry-run",
    ),
}

JOBS = {
    "jobs list": Command(_list, "list what was submitted from here, the newest first", (JSON,), only_prints=True),
    "jobs status": Command(
        _status,
        "show where the jobs of a submission are",
        (JSON,),
        words=_JOB,
        example="gym jobs status",
        only_prints=True,
    ),
    "jobs cancel": Command(
        _cancel,
        "end the jobs of a submission, and those that would go on with them",
        (_BENCHMARK,),
        words=_ONE_JOB,
        example="gym jobs cancel gym-job-20261130T090000Z-a1b2c3",
    ),
    "jobs logs": Command(
        _logs,
        "print what a step of a job has written",
        (
            _BENCHMARK,
            OwnFlag(names=("--step",), metavar="NAME", help="a service, `job` for the script itself (default: driver)"),
            SwitchFlag(names=("--follow", "-f"), help="keep printing what comes"),
        ),
        words=_JOB,
        example="gym jobs logs --step job",
        only_prints=True,
    ),
}
