"""What `gym --version` knows."""

import pytest

from nemo_gym.cli import general


def test_a_dependency_that_is_not_there_has_no_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(general, "KEY_DEPENDENCIES", ("no-such-distribution", "pydantic"))
    monkeypatch.setattr("sys.argv", ["gym"])
    found = general.version_facts()["dependencies"]
    assert found["no-such-distribution"] is None and found["pydantic"][0].isdigit()
    general.version()
    assert "no-such-distribution: not installed" in capsys.readouterr().out
