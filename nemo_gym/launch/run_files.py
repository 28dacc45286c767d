"""The files a run keeps in its folder, and their removal: nothing else in that folder is ever touched."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from nemo_gym.config.handover import (
    ADDRESSES_FILE_NAME,
    COLLECTORS_FOLDER_NAME,
    TABLES_FOLDER_NAME,
    TOKEN_FILE_NAME,
)

RUN_FILE_NAME = "run.json"
CONFIG_FILE_NAME = "config.json"
LOGS_FOLDER_NAME = "logs"
LAUNCHER_LOG_NAME = "launcher.log"
CONTROL_SOCKET_NAME = "control.sock"
PRIVATE = 0o600

_FILES = (
    TOKEN_FILE_NAME,
    CONFIG_FILE_NAME,
    LAUNCHER_LOG_NAME,
    RUN_FILE_NAME,
    CONTROL_SOCKET_NAME,
    ADDRESSES_FILE_NAME,
)
FOLDERS = (LOGS_FOLDER_NAME, TABLES_FOLDER_NAME, COLLECTORS_FOLDER_NAME)


def foreign_entries(directory: Path) -> list[str]:
    """What a folder holds that no run put there."""
    own = {*_FILES, *FOLDERS}
    try:
        return sorted(
            entry.name
            for entry in directory.iterdir()
            if entry.name not in own and not entry.name.startswith(tuple(f".{name}." for name in _FILES))
        )
    except OSError:
        return []


def remove_run_files(directory: Path) -> None:
    """Remove a run's files and, when nothing else is in it, the folder."""
    for folder in FOLDERS:
        shutil.rmtree(directory / folder, ignore_errors=True)
    for name in _FILES:
        for path in (directory / name, *directory.glob(f".{name}.*")):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()
