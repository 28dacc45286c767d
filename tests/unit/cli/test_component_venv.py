"""What is said where the tests of a component fail, or where it has none."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym.cli import component_venv


@pytest.fixture
def component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose pytest always fails."""
    monkeypatch.setattr(component_venv, "component_directory", lambda _: tmp_path)
    monkeypatch.setattr(component_venv, "ensure_venv", lambda *_, **__: SimpleNamespace(python=Path("/bin/false")))
    (tmp_path / ".venv/lib").mkdir(parents=True)
    (tmp_path / ".venv/lib/test_of_a_package.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("tests", "said"), [([], "has no tests. The container"), (["tests/test_app.py"], "To run these tests by hand: cd ")]
)
def test_no_tests_are_not_tests_that_failed(
    component: Path, capsys: pytest.CaptureFixture[str], tests: list[str], said: Any
) -> None:
    for name in tests:
        (component / name).parent.mkdir()
        (component / name).touch()
    assert component_venv.run_tests("resources_servers/x", {}) == 1
    assert said in capsys.readouterr().out
