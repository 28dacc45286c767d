"""docs/write-an-environment.md does what it says: its file is an environment, and its snippet runs on it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.audit import call
from nemo_gym.config.roots import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME
from nemo_gym.environment_audit import audit
from nemo_gym.onefile.component import cached_component
from nemo_gym.onefile.loading import load_environment

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "write-an-environment.md").read_text(encoding="utf-8")
FILES: list[tuple[str, str]] = re.findall(r"^```python file=(\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
[(NAME, SOURCE)] = FILES
SNIPPETS = re.findall(r"^```python run\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
AUDIT_PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
MOST_LINES = 25


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_text(SOURCE, encoding="utf-8")
    return tmp_path / NAME


def test_it_is_short() -> None:
    assert len(SOURCE.splitlines()) <= MOST_LINES


def test_it_is_an_environment_with_tasks_tools_and_a_verifier(file: Path) -> None:
    env = load_environment(file)
    assert (env.name, len(env.rows()), list(env.tools)) == ("shop", 2, ["put"])
    assert env.play(env.tasks[1], [call("put", item="apples", count=3), "There."]).reward == 1.0


def test_it_passes_its_audit(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(cached_component(file, tmp_path / "cache").root))
    report = audit("shop")
    assert report.passed, report


@pytest.mark.parametrize("code", [*SNIPPETS, *re.findall(r"^```python run\n(.*?)^```", AUDIT_PAGE, re.S | re.M)])
def test_a_snippet_runs_beside_it(code: str, file: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(file.parent)])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=file.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_page_on_audits_names_every_check(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(cached_component(file, tmp_path / "cache").root))
    checks = {finding.check for finding in audit("shop").findings} - {"right answer"}
    assert {check for check in checks if f"`{check}`" not in AUDIT_PAGE} == set()
