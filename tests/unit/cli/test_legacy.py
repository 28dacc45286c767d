"""The script names of old: each says what to type now, and runs that."""

import sys
import tomllib
from collections.abc import Callable

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.cli import legacy
from nemo_gym.cli import main as cli
from nemo_gym.cli.commands import COMMANDS, GROUPS, NOT_YET


@pytest.fixture
def reentered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The line with which `gym` is entered for a legacy script."""
    lines: list[list[str]] = []
    monkeypatch.setattr(cli, "main", lambda: lines.append(list(sys.argv)))

    def run(script: str, *argv: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [script, *argv])
        legacy.main()
        return lines[-1]

    return run


@pytest.mark.parametrize("prefix", ["ng_", "nemo_gym_"])
@pytest.mark.parametrize("key", legacy.TOKENS)
def test_every_name_enters_its_command_and_says_so(
    reentered: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], prefix: str, key: str
) -> None:
    line = reentered(f"/usr/bin/{prefix}{key}", "+a=1", "--json")
    tokens = list(legacy.TOKENS[key])
    assert line == ["gym", *tokens, "+a=1", "--json"]
    error = capsys.readouterr().err
    assert f"{prefix}{key}" in error and f"gym {' '.join(tokens)}" in error
    assert len(error.splitlines()) == 1


def test_there_are_26_names() -> None:
    assert len(legacy.KEYS) == len(set(legacy.KEYS)) == 26


def test_every_name_is_an_installed_script() -> None:
    scripts = tomllib.loads((PARENT_DIR / "pyproject.toml").read_text())["project"]["scripts"]
    names = {prefix + key for prefix in legacy.PREFIXES for key in legacy.KEYS}
    assert {name for name, target in scripts.items() if target == "nemo_gym.cli.legacy:main"} == names
    assert scripts["gym"] == scripts["ng"] == "nemo_gym.cli.main:main"


@pytest.mark.parametrize("tokens", [tokens for tokens in legacy.TOKENS.values() if not tokens[0].startswith("--")])
def test_every_name_stands_for_a_command_of_now_or_later(tokens: tuple[str, ...]) -> None:
    group, command = tokens[:2]
    assert f"{group} {command}" in COMMANDS or command in NOT_YET[group]
    assert group in GROUPS or group in NOT_YET


def test_an_unknown_name_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["ng_nonsense"])
    with pytest.raises(SystemExit) as ended:
        legacy.main()
    assert ended.value.code == 1
    assert "ng_nonsense" in capsys.readouterr().err


def test_reinstall_runs_uv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    commands: list[tuple[str, ...]] = []

    def call(command: tuple[str, ...]) -> int:
        commands.append(command)
        return 3

    monkeypatch.setattr(sys, "argv", ["ng_reinstall"])
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("subprocess.call", call)
    with pytest.raises(SystemExit) as ended:
        legacy.main()
    assert (ended.value.code, commands) == (3, [("uv", "sync", "--extra", "dev")])
    assert "uv sync --extra dev" in capsys.readouterr().err
