"""Shipped environments pass their audits; those with packages of their own do so in their venvs, by `gym env audit`."""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from nemo_gym.environment_audit import audit
from nemo_gym.sandbox.providers.namespaces.availability import isolation

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.parent.name for path in ROOT.glob("resources_servers/*/audit.py"))
RUNS_PROGRAMS = {"code_gen"}
FEWER_STEPS = {
    "finance_sec_search": "++finance_sec_search_finance_agent.responses_api_agents.finance_agent.max_steps=10",
}
"""A model that never submits is asked so often; how often says nothing about the verifier."""


def packages_of(name: str) -> list[str]:
    lines = (ROOT / "resources_servers" / name / "requirements.txt").read_text().splitlines()
    return [match[0] for line in lines if (match := re.match(r"[A-Za-z][\w.-]*", line))]


def is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_environment_passes_its_audit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources_servers.finance_sec_search.grading.PAUSES", (0.0, 0.0))
    if name in RUNS_PROGRAMS and isolation().refusal:
        pytest.skip(isolation().refusal)
    if missing := [package for package in packages_of(name) if not is_installed(package)]:
        pytest.skip(f"{', '.join(missing)} is for the environment's own venv")
    report = audit(name, [FEWER_STEPS[name]] if name in FEWER_STEPS else [])
    assert report.passed, report


def test_there_are_some() -> None:
    assert {"mcqa", "code_gen", "workplace_assistant", "equivalence_llm_judge"} <= set(NAMES)
