"""How a process learns the composed config and its own part in it.

The config travels in a file only its owner can read; the environment holds no more than the file's path.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.replacing import write_private

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONFIG_DICT_ENV = "NEMO_GYM_CONFIG_DICT"
"""The whole config as YAML text: honoured when somebody else sets it, never written by Gym."""
CONFIG_FILE_ENV = "NEMO_GYM_CONFIG_FILE"
"""Path of the 0600 file that holds the composed config."""
INSTANCE_ENV = "NEMO_GYM_CONFIG_PATH"
"""Name of the server instance this process serves."""
RUN_DIR_ENV = "NEMO_GYM_RUN_DIR"
LISTEN_FD_ENV = "NEMO_GYM_LISTEN_FD"
"""Number of an inherited socket that already listens; of a shard's, with commas between, in its servers' order."""
SHARD_ENV = "NEMO_GYM_SHARD"
"""What a process that holds several servers is to do, as JSON; see `config.placement.Shard`."""
READY_FD_ENV = "NEMO_GYM_READY_FD"
"""Number of an inherited pipe: one byte `1` is written there, and it is closed, once the server serves."""

GENERATION_ENV = "NEMO_GYM_GENERATION"
"""How often this server was started again in this run; absent for the first time."""

TOKEN_FILE_NAME = "token"
TABLES_FOLDER_NAME = "tables"
"""In a run's folder: a socket `<pid>.sock` of every process that serves, which tells what it is answering."""
# Python 3.13 defines paths in a private module, and OmegaConf reads them by their public name only.
_PATH_OF_3_13 = re.compile(r"(!!python/object/apply:pathlib\.)_local\.")
ADDRESSES_FILE_NAME = "addresses.json"
"""In the folder of a run whose servers move: where each is now, as JSON: `http://host:port` by instance name."""
COLLECTORS_FOLDER_NAME = "collectors"
"""In a run's folder: a socket `<pid>.sock` of every process that collects rollouts from the run's servers."""


def write_config(path: Path, config: Mapping[str, Any] | DictConfig) -> None:
    """Write a config for other processes of this user, whole or not at all, mode 0600; `${...}` stay unresolved."""
    write_private(path, _as_text(_as_container(config)))


def read_config() -> dict[str, Any] | None:
    """The config handed to this process, `${...}` unresolved; None when it was started by nobody.

    Raises ConfigError when what the environment names can't be read.
    """
    if file_name := os.environ.get(CONFIG_FILE_ENV):
        try:
            text = Path(file_name).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{CONFIG_FILE_ENV} names {file_name}, which can't be read ({error.strerror}): "
                f"the run that wrote it has probably ended; unset the variable or start the servers again."
            ) from error
        return _from_text(text, f"The file {file_name} named by {CONFIG_FILE_ENV}")
    if text := os.environ.get(CONFIG_DICT_ENV, ""):
        return _from_text(text, CONFIG_DICT_ENV)
    return None


def run_directory(head_port: int) -> Path:
    """The folder that belongs to the run whose head server has this port; it need not exist."""
    if named := os.environ.get(RUN_DIR_ENV):
        return Path(named)
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"nemo-gym-{os.getuid()}" / str(head_port)


def create_private_directory(path: Path) -> Path:
    """Make a folder with mode 0700, missing parents alike, and check that nobody else owns it."""
    if not path.parent.exists():
        create_private_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ConfigError(f"{path} is not a folder of your own: remove it or set {RUN_DIR_ENV} to another folder.")
    path.chmod(0o700)
    return path


def write_token(run_dir: Path) -> str:
    """A new random token for this run, kept in its folder with mode 0600."""
    token = secrets.token_hex(32)
    path = run_dir / TOKEN_FILE_NAME
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(token)
    return token


def read_token(run_dir: Path) -> str | None:
    """The token of a run; None when there is none or it isn't ours to read."""
    try:
        return (run_dir / TOKEN_FILE_NAME).read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _as_container(config: Mapping[str, Any] | DictConfig) -> dict[str, Any]:
    if type(config) is dict:
        return config
    from omegaconf import OmegaConf

    if OmegaConf.is_config(config):
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    return dict(config)


def _as_text(container: dict[str, Any]) -> str:
    """JSON where it says the same; YAML for what JSON would change (keys that aren't text, paths, bytes, enums)."""
    if _is_json(container):
        return json.dumps(container, ensure_ascii=False)
    from omegaconf import OmegaConf

    return _PATH_OF_3_13.sub(r"\1", OmegaConf.to_yaml(OmegaConf.create(container)))


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, int, float, bool)


def _from_text(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = _from_yaml(text, what)
    if not isinstance(value, dict):
        raise ConfigError(f"{what} holds no mapping: it must be the whole config.")
    return value


def _from_yaml(text: str, what: str) -> object:
    import yaml
    from omegaconf import OmegaConf

    try:
        return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except yaml.YAMLError as error:
        raise ConfigError(f"{what} is not valid YAML: {error}") from error
