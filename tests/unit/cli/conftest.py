import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nemo_gym import global_config
from nemo_gym.cli import main as cli


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Gym = Callable[..., Ended]


@pytest.fixture
def gym(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Gym:
    """Run `gym` in this process, in an empty folder, with nothing composed before."""
    (tmp_path / "env.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in ("NEMO_GYM_RUN_DIR", "NEMO_GYM_EXTRA_ROOTS", "NEMO_GYM_CONFIG_DICT", "NEMO_GYM_CONFIG_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*argv: str) -> Ended:
        monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
        monkeypatch.setattr(sys, "argv", ["gym", *argv])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        captured = capfd.readouterr()
        return Ended(code, captured.out, captured.err)

    return run
