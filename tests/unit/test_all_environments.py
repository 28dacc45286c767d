"""The script that tests and audits everything: what it chooses, counts and reports."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import all_environments
from tests.all_environments import (
    Ended,
    Outcome,
    Place,
    changed,
    checks_in,
    chosen,
    components,
    counted,
    report_lines,
)

KNOWN = ["resources_servers/mcqa", "responses_api_agents/simple_agent", "environments/wordle"]
JUNIT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], KNOWN),
        (["mcqa"], KNOWN[:1]),
        (["environments/wordle/", "resources_servers/mcqa"], [KNOWN[0], KNOWN[2]]),
    ],
)
def test_what_is_named_is_chosen(names: list[str], expected: list[str]) -> None:
    assert chosen(names, KNOWN) == expected


def test_a_name_that_means_nothing_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        chosen(["mcqa", "nowhere"], KNOWN)
    assert ended.value.code == 2 and "no component nowhere." in capsys.readouterr().err


def test_servers_and_environments_of_this_checkout_are_known() -> None:
    found = components()
    assert len(found) == len(set(found)) and {*KNOWN, "responses_api_models/openai_model"} <= set(found)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((5, 0, 0, 0), "5 passed"),
        ((5, 1, 1, 2), "1 passed, 2 failed, 2 skipped"),
        ((1, 0, 0, 1), "0 passed, 1 skipped"),
    ],
)
def test_tests_are_counted(numbers: tuple[int, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(JUNIT.format(*numbers))
    assert counted(tmp_path / "r.xml") == said
    assert counted(tmp_path / "none.xml") == "no tests ran"


def test_checks_are_counted_but_those_not_tried() -> None:
    findings = ",".join(f'{{"verdict": "{verdict}"}}' for verdict in ("ok", "FAILED", "not tried", "ok"))
    assert checks_in(f'{{"findings": [{findings}]}}') == "3 checks, 1 failed"
    assert checks_in('{"findings": [{"verdict": "ok"}]}') == "1 checks"
    assert checks_in("Error: no audit") == "no audit"


def test_a_server_is_tested_and_audited_in_a_new_venv_and_an_environment_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[list[str]] = []

    def gym(self: Place, *words: str) -> Ended:
        lines.append([word.partition(f"={tmp_path}")[0] for word in words])
        failed = words[1] == "audit"
        return Ended(int(failed), "✓ Verifier: wordle (wordle) 4 cases passed.\n", "a\nb\nc\nd\ne\nf\n")

    monkeypatch.setattr(Place, "gym", gym)
    monkeypatch.setattr(all_environments, "auditable", lambda: ["mcqa"])
    outcomes = [Place(tmp_path).outcome(name) for name in KNOWN]
    assert lines == [
        ["env", "test", "+entrypoint=resources_servers/mcqa", "+should_validate_data=true", "+uv_venv_dir"],
        ["env", "audit", "mcqa", "--json", "+uv_venv_dir"],
        ["env", "test", "+entrypoint=responses_api_agents/simple_agent", "+should_validate_data=true", "+uv_venv_dir"],
        ["env", "validate", "wordle"],
        ["env", "test", "wordle"],
    ]
    assert [outcome.problems for outcome in outcomes] == [["audit ended with 1: b / c / d / e / f"], [], []]
    assert outcomes[2].tests == "4 cases passed"
    assert Ended(None, "", "").problem("tests") == ["tests took more than 3600 s: "]


def test_the_report_has_a_row_for_each_and_says_what_failed() -> None:
    outcomes = [
        Outcome("resources_servers/mcqa", 1.24, "5 passed", "40 checks"),
        Outcome("environments/x", 2.0, "", "", [f"verifier ended with 1: {all_environments.ROOT}/a | b"]),
    ]
    lines = "\n".join(report_lines(outcomes, {"cores": 2}, "2026-01-02")).splitlines()
    assert lines[0] == "# Every component in its own venv, 2026-01-02"
    assert "2 components, 1 failed, 3 s" in lines[2] and lines[4] == "Machine: cores 2."
    assert lines[8:10] == [
        "| resources_servers/mcqa | passed | 1.2 | 5 passed | 40 checks |",
        "| environments/x | FAILED | 2.0 |  |  |",
    ]
    assert lines[-1] == "- **environments/x**: verifier ended with 1: ./a \\| b"


def test_what_changed_since_a_commit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(all_environments, "ROOT", tmp_path)
    monkeypatch.delenv("GYM_CI_BASE", raising=False)
    assert changed(KNOWN) == []
    git("init", "-b", "main")
    for number, name in enumerate(("resources_servers/mcqa/app.py", "environments/wordle/config.yaml", "README.md")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
        git("add", "-A")
        git("commit", "-m", name)
    assert changed(KNOWN) == []
    monkeypatch.setenv("GYM_CI_BASE", "HEAD~2")
    assert changed(KNOWN) == ["environments/wordle"]
