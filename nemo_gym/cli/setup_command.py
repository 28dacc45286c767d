"""Preparing a server's folder to run something in it, as text for a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nemo_gym.config.keys import SKIP_VENV_IF_PRESENT_KEY_NAME, UV_CACHE_DIR_KEY_NAME, UV_LOCK_TIMEOUT_SECONDS_KEY_NAME
from nemo_gym.launch.venvs import VenvSettings, venv_path

if TYPE_CHECKING:
    from omegaconf import DictConfig

_VENV_KEYS = (
    "uv_venv_dir",
    SKIP_VENV_IF_PRESENT_KEY_NAME,
    "head_server_deps",
    UV_CACHE_DIR_KEY_NAME,
    UV_LOCK_TIMEOUT_SECONDS_KEY_NAME,
    "pip_install_verbose",
)


def get_venv_path(dir_path: Path, global_config_dict: DictConfig) -> Path:
    """Where the venv of the server in `dir_path` is, or will be."""
    return venv_path(Path(dir_path), VenvSettings.from_config(global_config_dict).root)


def setup_env_command(dir_path: Path, global_config_dict: DictConfig, prefix: str) -> str:
    """Shell text that makes the server's folder current and its venv active, built first where that is needed.

    What building it writes begins with `(<prefix>) `.
    """
    venv = get_venv_path(dir_path, global_config_dict)
    settings = _plain({key: global_config_dict.get(key) for key in _VENV_KEYS})
    build = [sys.executable, "-m", "nemo_gym.cli._venv_setup", "--dir", str(dir_path), "--prefix", prefix]
    return " && ".join(
        [
            f"cd {shlex.quote(str(dir_path))}",
            shlex.join([*build, "--settings", settings]),
            f"source {shlex.quote(str(venv / 'bin/activate'))}",
        ]
    )


def run_command(
    command: str,
    working_dir_path: Path,
    server_name: str = "",
    project_root: Path | None = None,
    *,
    global_config_dict: DictConfig | None = None,
    stdout_target: int | IO[Any] | None = None,
    stderr_target: int | IO[Any] | None = None,
    extra_env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Run shell text in a server's folder, with that folder and `project_root` importable.

    `server_name` goes into the environment of nothing; it is what an error would call the command.
    """
    config: Mapping[str, Any] = global_config_dict if global_config_dict is not None else {}
    paths = [str(working_dir_path), str(project_root or ""), os.environ.get("PYTHONPATH", "")]
    uv = {
        "UV_CACHE_DIR": config.get(UV_CACHE_DIR_KEY_NAME),
        "UV_LOCK_TIMEOUT": config.get(UV_LOCK_TIMEOUT_SECONDS_KEY_NAME),
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        **{name: str(value) for name, value in uv.items() if value is not None},
        **(extra_env or {}),
    }
    return subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=working_dir_path,
        env=environment,
        stdout=stdout_target,
        stderr=stderr_target,
    )


def _plain(settings: Mapping[str, Any]) -> str:
    import json

    from omegaconf import OmegaConf

    values = {key: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for key, v in settings.items()}
    return json.dumps({key: value for key, value in values.items() if value is not None})
