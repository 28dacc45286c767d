"""Auditing environments by name: `audit("mcqa")`, and as a program in the venv of what is audited."""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nemo_gym import global_config
from nemo_gym.audit.progress import begin
from nemo_gym.audit.report import Report, joined
from nemo_gym.audit.running import audited, composed
from nemo_gym.audit.subject import Subject, subjects
from nemo_gym.config.roots import also_searched
from nemo_gym.errors import GymError

__all__ = ["audit"]


def audit(name: str, overrides: Sequence[str] = ()) -> Report:
    """The report on a resources server (all its configs), `NAME/FLAVOR`, or an environment.

    `overrides` change the config, after those of the environment's own. It runs in this process, which must be able to
    import the components. Raises GymError where it can't be run.
    """
    return joined(name, [_audited(name, subject, overrides) for subject in subjects(name)])


def _audited(name: str, subject: Subject, overrides: Sequence[str]) -> Report:
    statement = subject.statement()
    config = composed(subject, [*(statement.overrides if statement else ()), *overrides])
    with _as_global(config), also_searched(last=[Path.cwd()]), contextlib.chdir(subject.folder):
        return _run(audited(name, subject, statement, config))


def _run(auditing: Coroutine[Any, Any, Report]) -> Report:
    """Run it, and don't wait for what goes on forever."""
    runner = asyncio.Runner()
    is_late = False
    try:
        report = runner.run(auditing)
        is_late = report.is_late
        return report
    finally:
        if not is_late:
            runner.close()


@contextlib.contextmanager
def _as_global(config: DictConfig) -> Iterator[None]:
    before = global_config._GLOBAL_CONFIG_DICT
    global_config._GLOBAL_CONFIG_DICT = config
    try:
        yield
    finally:
        global_config._GLOBAL_CONFIG_DICT = before


def main() -> None:
    """`NAME FILE [OVERRIDE…]`: write the report on NAME into FILE as JSON, and tell how far it is."""
    begin()
    name, path, *overrides = sys.argv[1:]
    logging.getLogger().setLevel(logging.ERROR)
    try:
        report = audit(name, overrides)
    except GymError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    Path(path).write_text(json.dumps(report.as_data()), encoding="utf-8")
    if report.is_late:  # threads that go on forever would keep this program from ending
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
