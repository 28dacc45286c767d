"""`gym env audit`: whether doing nothing and known tricks pay in an environment, and whether the right answer does."""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.cli.one_file import is_file
from nemo_gym.cli.watched import Ended, watched
from nemo_gym.errors import UsageError

if TYPE_CHECKING:
    from nemo_gym.audit.report import Report

_PROGRAM = "nemo_gym.environment_audit"
_SAY_EVERY_S = 10.0


def audit(name: str | None, overrides: Sequence[str], *, as_json: bool) -> None:
    """Audit a resources server, one of its configs, or an environment; ends with 1 when a check failed."""
    if not name:
        raise UsageError(
            "missing NAME: a resources server, NAME/FLAVOR, an environment or an environment's file; or --all."
        )
    sys.argv = [sys.argv[0], *overrides]
    report = _of_file(name, overrides) if is_file(name) else report_in_venv(name, overrides)
    if as_json:
        print(json.dumps(report.as_data(), indent=2))
    else:
        _print(report)
    if not report.passed:
        raise SystemExit(1)


def _of_file(path: str, overrides: Sequence[str]) -> "Report":
    from nemo_gym.config.roots import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME as ROOTS
    from nemo_gym.config.roots import augment_sys_path
    from nemo_gym.onefile.component import cached_component

    component = cached_component(Path(path))
    os.environ[ROOTS] = os.pathsep.join(filter(None, [str(component.root), os.environ.get(ROOTS)]))
    augment_sys_path()
    return report_in_venv(component.name, overrides)


def report_in_venv(name: str, overrides: Sequence[str]) -> "Report":
    """The report, made in the venv of the component, whose packages the checks need."""
    from nemo_gym.audit.report import Report
    from nemo_gym.audit.subject import subjects
    from nemo_gym.config.roots import is_server_directory
    from nemo_gym.launch.venvs import VenvSettings, ensure_venv

    folder = subjects(name)[0].folder
    python = Path(sys.executable)
    if is_server_directory(folder):
        python = ensure_venv(folder, VenvSettings.from_config(_settings()), report=_on_stderr).python
    with tempfile.TemporaryDirectory(prefix="gym-audit-") as place:
        path = Path(place, "report.json")
        command = [str(python), "-P", "-m", _PROGRAM, name, str(path), *overrides]
        progress = _Progress(name)
        ended = _watched(command, progress)
        if ended is not None and not ended.code and path.exists():
            return Report.of_data(json.loads(path.read_text(encoding="utf-8")))
        if not progress.check and ended is not None:
            raise SystemExit(ended.code or 1)  # it has said why
        return progress.unfinished(ended)


class _Held(Exception):
    """The environment holds up the program that audits it."""


class _Progress:
    """How far an audit is: it says so now and then, and makes a report of what there is when it can't go on.

    In a terminal every check is told as it begins; anywhere else, and of a long check, something every ten seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.check = self.config = self.late = ""
        self._findings: list[dict[str, Any]] = []
        self._clock = clock
        self._said = self._began = clock()

    def heard(self, said: dict[str, Any]) -> None:
        """Raises _Held when it is told that nothing goes on."""
        if "finding" in said:
            self._findings.append(said["finding"])
        if "late" in said:
            self.late = said["late"]
            raise _Held
        if "check" in said and (said["check"], said["config"]) != (self.check, self.config):
            self.check, self.config = said["check"], said["config"]
            self._began = self._clock()
            if sys.stderr.isatty():
                self._say("")

    def meanwhile(self) -> None:
        """Say what is being checked, and for how long, if nothing was said for a while."""
        now = self._clock()
        if self.check and now - self._said >= _SAY_EVERY_S:
            self._say(f", {now - self._began:.0f} s")

    def _say(self, seconds: str) -> None:
        self._said = self._clock()
        done = len(self._findings)
        _on_stderr(f"{self.name}: {self.config}, {self.check}{seconds} ({done} check{'' if done == 1 else 's'} done) …")

    def unfinished(self, ended: Ended | None) -> "Report":
        from nemo_gym.audit.report import Finding, Report

        if ended is None or ended.is_stuck:
            got = self.late or "no verdict in time"
            note = f"It gets {got}, and nothing else goes on meanwhile: end the loop, or run it apart."
        else:
            note = (
                f"The program that audits it {ended}: the verifier, a tool or a program run in the environment's own "
                "process ended it (os._exit or a crash). Let them return, and run programs apart, as in "
                "docs/verifiers.md."
            )
        broken = Finding(
            self.config, self.check, "what was being tried", "FAILED", note=f"{note} Nothing more was tried."
        )
        return Report(self.name, (*(Finding(**finding) for finding in self._findings), broken))


def _watched(command: list[str], progress: _Progress) -> Ended | None:
    """How the program ended; None where the environment held it up."""
    from nemo_gym.audit.running import GRACE_SECONDS, ROLLOUT_SECONDS

    patience = ROLLOUT_SECONDS + 5 * GRACE_SECONDS
    try:
        environment = {**os.environ, **_paths()}
        return watched(command, progress.heard, patience_s=patience, env=environment, meanwhile=progress.meanwhile)
    except _Held:
        return None


def _settings() -> dict[str, object]:
    from nemo_gym.cli.composing import without_model

    return {str(key): value for key, value in without_model().items()}


def _paths() -> dict[str, str]:
    """What lets the program import this package, wherever its interpreter is."""
    from nemo_gym.config.roots import PARENT_DIR

    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(PARENT_DIR), os.environ.get("PYTHONPATH")]))}


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _print(report: "Report") -> None:
    from nemo_gym.cli.text_table import Column, table_lines

    columns = [Column("CONFIG", 2), Column("CHECK"), Column("REWARD", is_number=True), Column("ROWS", 3, True)]
    columns += [Column("VERDICT"), Column("WHAT", 1)]
    rows = [
        [
            finding.config,
            finding.check,
            "-" if finding.reward is None else f"{finding.reward:g}",
            str(finding.rows),
            finding.verdict,
            finding.note if finding.verdict == "not tried" else finding.about,
        ]
        for finding in report.findings
    ]
    print("\n".join(table_lines(columns, rows, max(80, shutil.get_terminal_size((120, 40)).columns))))
    told: dict[tuple[str, str], list[str]] = {}
    for finding in report.failures:
        told.setdefault((finding.config, finding.note), []).append(finding.check)
    for (config, note), checks in told.items():
        print(f"\n{config}, {', '.join(checks)}: {note}")
    verdict = "passed" if report.passed else f"failed {len(report.failures)} of"
    print(f"\n{report.name} {verdict} {report.tried} checks.")
