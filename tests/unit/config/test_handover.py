"""How processes hand the config on."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config import handover
from nemo_gym.config.errors import ConfigError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_config_travels_in_a_private_file_as_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create({"a": "${b}", "b": [1, 1.5, None, True], "c": "???", "ü": "ß", "e": "1e3"})
    path = project / "config.json"
    path.write_text("older")
    handover.write_config(path, config)
    assert mode(path) == 0o600
    assert [file.name for file in project.iterdir()] == ["config.json"]
    monkeypatch.setenv(handover.CONFIG_FILE_ENV, str(path))
    assert handover.read_config() == OmegaConf.to_container(config, resolve=False)


@pytest.mark.parametrize("value", [{1: "one", 2.5: "x"}, Path("/x"), [{3: Path("y")}]])
def test_what_json_would_change_survives(value: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"value": value, "text": "1e3", "a": "${value}"}
    handover.write_config(project / "c", config)
    monkeypatch.setenv(handover.CONFIG_FILE_ENV, str(project / "c"))
    assert handover.read_config() == config


def test_yaml_in_the_environment_is_honoured_and_the_file_wins(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handover.read_config() is None
    monkeypatch.setenv(handover.CONFIG_DICT_ENV, "a:\n  b: ${c}\n  d: 1e3\n")
    assert handover.read_config() == {"a": {"b": "${c}", "d": 1000.0}}
    handover.write_config(project / "c", {"x": 1})
    monkeypatch.setenv(handover.CONFIG_FILE_ENV, str(project / "c"))
    assert handover.read_config() == {"x": 1}


@pytest.mark.parametrize("text", ["[1]", "a: ["])
def test_what_is_no_config_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handover.CONFIG_DICT_ENV, text)
    with pytest.raises(ConfigError, match=handover.CONFIG_DICT_ENV):
        handover.read_config()


def test_a_file_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handover.CONFIG_FILE_ENV, "/nowhere/config.json")
    with pytest.raises(ConfigError, match=r"/nowhere/config\.json"):
        handover.read_config()


def test_the_run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/me")
    assert handover.run_directory(11000) == Path(f"/run/me/nemo-gym-{os.getuid()}/11000")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", "/t")
    assert handover.run_directory(7) == Path(f"/t/nemo-gym-{os.getuid()}/7")
    monkeypatch.setenv(handover.RUN_DIR_ENV, str(tmp_path))
    assert handover.run_directory(7) == tmp_path


def test_private_directories(project: Path) -> None:
    made = handover.create_private_directory(project / "a" / "b")
    assert (mode(made), mode(made.parent)) == (0o700, 0o700)
    made.chmod(0o755)
    assert mode(handover.create_private_directory(made)) == 0o700
    (project / "link").symlink_to(made)
    with pytest.raises(ConfigError, match="not a folder of your own"):
        handover.create_private_directory(project / "link")


def test_a_directory_of_somebody_else_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 123456)
    with pytest.raises(ConfigError, match="not a folder of your own"):
        handover.create_private_directory(project / "a")


def test_tokens_are_private_and_new_each_time(project: Path) -> None:
    assert handover.read_token(project) is None
    first, second = handover.write_token(project), handover.write_token(project)
    assert first != second
    assert handover.read_token(project) == second
    assert mode(project / "token") == 0o600
