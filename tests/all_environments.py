"""`python -m tests.all_environments [NAME …]`: every component's tests and audit in a venv of its own.

A NAME is a folder (`resources_servers/mcqa`, `environments/wordle`) or its last part; without any, all are meant.
`--changed` adds those that differ from the commit in `GYM_CI_BASE`, the one before the last unless set. Venvs
of servers are built anew in a temporary folder, so that what `requirements.txt` forgets is missing. Each component gets
a line, and docs/reports/<date>-environments.md a row; it ends with 1 when something failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from nemo_gym.cli.all_audits import auditable
from nemo_gym.cli.all_tests import server_folders
from nemo_gym.config.keys import RESOURCES_SERVERS
from tests.bench import machine

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "docs" / "reports"
GYM = (sys.executable, "-c", "from nemo_gym.cli.main import main; main()")
ENVIRONMENTS = "environments"
OTHER_DATA = {
    "genrm_compare": "rollouts are compared in groups of a prompt",
    "gymnasium": "a base class, of which no rollout can be made",
    "sec_local_index": "a library, without rows",
}
"""Where there are no five rows with a rollout each, and why."""

LONGEST_SECONDS = 3600
_LAST_LINES = 5


@dataclass(frozen=True)
class Outcome:
    """What came of a component. `problems` are empty when all was well."""

    component: str
    seconds: float
    tests: str
    audit: str
    problems: Sequence[str] = ()

    def __str__(self) -> str:
        shown = ", ".join(part for part in (self.tests, self.audit) if part)
        lines = [f"{'FAILED' if self.problems else 'passed'} {self.seconds:7.1f} s  {self.component}: {shown}"]
        return "\n".join([*lines, *(f"          ! {problem}" for problem in self.problems)])


@dataclass(frozen=True)
class Ended:
    """How a `gym` command ended."""

    code: int | None
    out: str
    said: str

    def problem(self, what: str) -> list[str]:
        if self.code == 0:
            return []
        how = f"took more than {LONGEST_SECONDS} s" if self.code is None else f"ended with {self.code}"
        return [f"{what} {how}: {' / '.join(self.said.splitlines()[-_LAST_LINES:])}"]


class Place:
    """A folder for venvs and test reports, and the commands that are run with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def gym(self, *words: str) -> Ended:
        command = [*GYM, *words]
        environment = {**os.environ, "GYM_CI_JUNIT_DIR": str(self._folder / "junit")}
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return Ended(None, "", "")
        return Ended(ended.returncode, ended.stdout, ended.stdout + ended.stderr)

    def outcome(self, component: str) -> Outcome:
        """Test and audit it."""
        started = time.perf_counter()
        tests, audit, problems = self._environment(component) if is_environment(component) else self._server(component)
        return Outcome(component, time.perf_counter() - started, tests, audit, problems)

    def _server(self, entrypoint: str) -> tuple[str, str, list[str]]:
        kind, _, name = entrypoint.partition("/")
        venvs, other = f"+uv_venv_dir={self._folder / 'venvs'}", OTHER_DATA.get(name, "")
        data = () if other else ("+should_validate_data=true",)
        tested = self.gym("env", "test", f"+entrypoint={entrypoint}", *data, venvs)
        problems = tested.problem("tests")
        counts = counted(self._folder / "junit" / f"{entrypoint.replace('/', '__')}.xml")
        counts += f"; data not checked: {other}" if other else ""
        if kind != RESOURCES_SERVERS or name not in auditable():
            return counts, "", problems
        audited = self.gym("env", "audit", name, "--json", venvs)
        return counts, checks_in(audited.out), problems + audited.problem("audit")

    def _environment(self, component: str) -> tuple[str, str, list[str]]:
        """Its files against each other, and its verifier's cases; tests and audit are its server's."""
        name = component.partition("/")[2]
        checked, verified = self.gym("env", "validate", name), self.gym("env", "test", name)
        cases = next((line for line in verified.out.splitlines() if line.startswith("✓ Verifier")), "")
        return cases.rpartition(") ")[2].rstrip("."), "", checked.problem("validate") + verified.problem("verifier")


def is_environment(component: str) -> bool:
    return component.startswith(f"{ENVIRONMENTS}/")


def components() -> list[str]:
    """Every server of this checkout that has tests, and every environment."""
    servers = [name for name, folder in server_folders().items() if (folder / "tests").is_dir()]
    named = sorted(f"{ENVIRONMENTS}/{path.parent.name}" for path in (ROOT / ENVIRONMENTS).glob("*/config.yaml"))
    return servers + named


def chosen(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Those that are named, in order; all without names. Ends with 2 for a name that means nothing."""
    if unknown := [name for name in names if not any(_means(name, each) for each in known)]:
        print(f"There is no component {', '.join(unknown)}.", file=sys.stderr)
        raise SystemExit(2)
    return [each for each in known if not names or any(_means(name, each) for name in names)]


def _means(name: str, component: str) -> bool:
    return name.rstrip("/") in (component, component.partition("/")[2])


def changed(known: Sequence[str]) -> list[str]:
    """Those with files that differ from an earlier commit; none where that can't be told."""
    asked = ["git", "diff", "--name-only", os.environ.get("GYM_CI_BASE") or "HEAD~1", "HEAD"]
    try:
        paths = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
    folders = {"/".join(path.split("/")[:2]) for path in paths}
    return [each for each in known if each in folders]


def counted(report: Path) -> str:
    """What a JUnit report counts: `12 passed, 1 skipped`."""
    if not report.is_file():
        return "no tests ran"
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in suites:
        for key in total:
            total[key] += int(suite.get(key, 0))
    failed = total["failures"] + total["errors"]
    counts = {"passed": total["tests"] - failed - total["skipped"], "failed": failed, "skipped": total["skipped"]}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "passed")


def checks_in(text: str) -> str:
    """What an audit's JSON counts: `40 checks`."""
    try:
        findings = json.loads(text)["findings"]
    except (ValueError, KeyError, TypeError):
        return "no audit"
    tried = [finding for finding in findings if finding["verdict"] != "not tried"]
    failed = sum(finding["verdict"] == "FAILED" for finding in tried)
    return f"{len(tried)} checks" + (f", {failed} failed" if failed else "")


def report_lines(outcomes: Sequence[Outcome], facts: Mapping[str, Any], today: str) -> Iterator[str]:
    failed = [outcome for outcome in outcomes if outcome.problems]
    yield f"# Every component in its own venv, {today}\n"
    yield (
        f"`python -m tests.all_environments`: {len(outcomes)} components, {len(failed)} failed, "
        f"{sum(outcome.seconds for outcome in outcomes):.0f} s, the building of venvs included.\n"
    )
    yield f"Machine: {', '.join(f'{name} {value}' for name, value in facts.items())}.\n"
    yield "| component | outcome | seconds | tests | audit |\n|---|---|--:|---|---|"
    for each in outcomes:
        verdict = "FAILED" if each.problems else "passed"
        yield f"| {each.component} | {verdict} | {each.seconds:.1f} | {each.tests} | {each.audit} |"
    if failed:
        yield "\n## What failed\n"
        yield from (f"- **{each.component}**: {_flat(problem)}" for each in failed for problem in each.problems)


def _flat(text: str) -> str:
    return " ".join(text.replace(str(ROOT), ".").replace("|", "\\|").split())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.all_environments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these components")
    parser.add_argument("--no-report", action="store_true", help="write no report")
    parser.add_argument("--changed", action="store_true", help="also those that changed")
    options = parser.parse_args()
    known = components()
    names = [*options.names, *(changed(known) if options.changed else ())]
    wanted = [] if options.changed and not names else chosen(names, known)
    facts, today = machine.facts(), datetime.datetime.now(datetime.UTC).date().isoformat()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="gym-environments-") as folder:
        place = Place(Path(folder))
        for component in wanted:
            outcomes.append(place.outcome(component))
            print(outcomes[-1], flush=True)
    if not options.no_report:
        path = REPORTS / f"{today}-environments{'-part' if options.names else ''}.md"
        path.write_text("\n".join(report_lines(outcomes, facts, today)) + "\n", encoding="utf-8")
        print(f"written to {path.relative_to(ROOT)}")
    return int(any(outcome.problems for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
