"""`gym env audit --all`: a line for each component, and a code that says whether all passed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nemo_gym.audit.report import Finding, Report
from nemo_gym.cli import all_audits
from nemo_gym.errors import GymError
from tests.unit.cli.conftest import Gym

OK = Finding("c", "right answer", "the right answer", "ok", 1.0, 5)
PAID = Finding("c", "empty", "empty text", "FAILED", 1.0, 5, "it pays")
UNTRIED = Finding("c", "silent judge", "no judge", "not tried")


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Four components, whose audits end as their names say; what was audited with which overrides."""
    calls: list[tuple[str, list[str]]] = []

    def report(name: str, overrides: Sequence[str]) -> Report:
        calls.append((name, list(overrides)))
        if name == "broken":
            raise GymError("broken has no example rows.")
        if name == "crashes":
            raise SystemExit(3)
        return Report(name, (OK, PAID, UNTRIED) if name == "pays" else (OK, UNTRIED))

    monkeypatch.setattr(all_audits, "report_in_venv", report)
    monkeypatch.setattr(all_audits, "auditable", lambda: ["broken", "crashes", "fine", "pays"])
    return calls


def test_one_line_each_and_1_when_one_failed(gym: Gym, audited: list[tuple[str, list[str]]]) -> None:
    ended = gym("env", "audit", "--all", "+x=1")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        "✗ broken could not be audited: broken has no example rows.",
        "✗ crashes could not be audited: its process ended with 3, as it says above.",
        "✓ fine passed 1 checks.",
        "✗ pays failed 1 of 2 checks: c, empty.",
        "",
        "1 / 4 passed their audit.",
        "To see why: gym env audit broken",
        "To see why: gym env audit crashes",
        "To see why: gym env audit pays",
    ]
    assert audited == [(name, ["+x=1"]) for name in ("broken", "crashes", "fine", "pays")]


def test_json_is_alone_on_standard_output(gym: Gym, audited: list[tuple[str, list[str]]]) -> None:
    ended = gym("env", "audit", "--all", "--json")
    assert ended.code == 1 and "✓ fine" in ended.err
    reports = json.loads(ended.out)
    assert [(report["name"], report["passed"]) for report in reports] == [
        ("broken", False),
        ("crashes", False),
        ("fine", True),
        ("pays", False),
    ]
    assert reports[0]["error"] == "broken has no example rows."
    assert [finding["check"] for finding in reports[3]["findings"]] == ["right answer", "empty", "silent judge"]
    assert audited[0][1] == []


def test_0_when_all_passed(gym: Gym, audited: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_audits, "auditable", lambda: ["fine"])
    ended = gym("env", "audit", "--all")
    assert (ended.code, ended.out) == (0, "✓ fine passed 1 checks.\n\n1 / 1 passed their audit.\n")


def test_all_takes_no_name(gym: Gym, audited: list[tuple[str, list[str]]]) -> None:
    ended = gym("env", "audit", "fine", "--all")
    assert ended.code == 2 and "leave out NAME" in ended.err
    assert audited == []


def test_what_an_agent_can_run_is_auditable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, agent in (("whole", "{a: {responses_api_agents: {simple_agent: {entrypoint: app.py}}}}"), ("part", "{}")):
        (tmp_path / "resources_servers" / name / "configs").mkdir(parents=True)
        (tmp_path / "resources_servers" / name / "configs" / f"{name}.yaml").write_text(agent)
        (tmp_path / "resources_servers" / name / "app.py").write_text("Server.run_webserver()\n")
    (tmp_path / "resources_servers" / "library").mkdir()
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    names = all_audits.auditable()
    assert "whole" in names and "mcqa" in names
    assert not {"part", "library", "sec_local_index"} & set(names)
    assert names == sorted(names)


def test_a_folder_that_serves_nothing_is_left_out() -> None:
    names = all_audits.auditable()
    assert "mcqa" in names and "gymnasium" not in names and "sec_local_index" not in names
