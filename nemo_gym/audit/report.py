"""What an audit found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["ok", "FAILED", "not tried"]


@dataclass(frozen=True)
class Finding:
    """One check of one config. `reward` is the worst one over `rows`: the lowest of right answers, the highest of
    tricks; None where nothing was rewarded. `note` says what is wrong and how to mend it, or why it wasn't tried."""

    config: str
    check: str
    about: str
    verdict: Verdict
    reward: float | None = None
    rows: int = 0
    note: str = ""


@dataclass(frozen=True)
class Report:
    """`is_late` says that verdicts were waited for in vain: what should have given them may still be running."""

    name: str
    findings: tuple[Finding, ...]
    is_late: bool = False

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict == "FAILED"]

    @property
    def tried(self) -> int:
        """How many checks were made."""
        return sum(finding.verdict != "not tried" for finding in self.findings)

    def __str__(self) -> str:
        if self.passed:
            return f"{self.name} passed {len(self.findings)} checks."
        return "\n".join(f"{finding.config}, {finding.check}: {finding.note}" for finding in self.failures)

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "passed": self.passed, "findings": [asdict(finding) for finding in self.findings]}

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Report:
        return cls(data["name"], tuple(Finding(**finding) for finding in data["findings"]))


def joined(name: str, reports: Iterable[Report]) -> Report:
    known = list(reports)
    findings = tuple(finding for report in known for finding in report.findings)
    return Report(name, findings, any(report.is_late for report in known))
