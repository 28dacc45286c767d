"""`gym env audit --all`: every component's audit, each in its own process and venv, a line each."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nemo_gym.cli.audit import report_in_venv
from nemo_gym.config.catalog import trees
from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from nemo_gym.audit.report import Report


@dataclass(frozen=True)
class Audited:
    """How an audit ended: with a report, or with why there is none."""

    name: str
    report: "Report | None" = None
    error: str = ""

    @property
    def passed(self) -> bool:
        return self.report is not None and self.report.passed

    def __str__(self) -> str:
        if self.report is None:
            return f"✗ {self.name} could not be audited: {self.error}"
        failures = self.report.failures
        if not failures:
            return f"✓ {self.name} passed {self.report.tried} checks."
        failed = "; ".join(f"{finding.config}, {finding.check}" for finding in failures)
        return f"✗ {self.name} failed {len(failures)} of {self.report.tried} checks: {failed}."

    def as_data(self) -> dict[str, Any]:
        if self.report is None:
            return {"name": self.name, "passed": False, "error": self.error, "findings": []}
        return self.report.as_data()


def audit_all(overrides: Sequence[str], *, as_json: bool) -> None:
    """Audit every component that can be; ends with 1 when one failed."""
    sys.argv = [sys.argv[0], *overrides]
    results = []
    for name in auditable():
        result = _audited(name, overrides)
        results.append(result)
        print(result, file=sys.stderr if as_json else sys.stdout, flush=True)
    failed = [result for result in results if not result.passed]
    if as_json:
        print(json.dumps([result.as_data() for result in results], indent=2))
    else:
        print(f"\n{len(results) - len(failed)} / {len(results)} passed their audit.")
        print("".join(f"To see why: gym env audit {result.name}\n" for result in failed), end="")
    if failed:
        raise SystemExit(1)


def auditable() -> list[str]:
    """The names of resources servers with a config that an agent can run, sorted; environments run one of those.

    A folder whose app.py serves nothing is a base for others.
    """
    from nemo_gym.audit.errors import AuditError
    from nemo_gym.audit.subject import subjects

    names = []
    apps = {folder.name: folder / "app.py" for tree in trees(RESOURCES_SERVERS) for folder in tree.iterdir()}
    for name, app in sorted(apps.items()):
        if not app.is_file() or "run_webserver" not in app.read_text(encoding="utf-8"):
            continue
        try:
            subjects(name)
        except AuditError:
            continue
        names.append(name)
    return names


def _audited(name: str, overrides: Sequence[str]) -> Audited:
    try:
        return Audited(name, report_in_venv(name, overrides))
    except GymError as error:
        return Audited(name, error=str(error))
    except SystemExit as end:
        return Audited(name, error=f"its process ended with {end.code}, as it says above.")
