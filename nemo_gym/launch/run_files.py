"""The files a run keeps in its folder, and their removal: nothing else in that folder is ever touched."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from nemo_gym.config.handover import TOKEN_FILE_NAME

RUN_FILE_NAME = "run.json"
CONFIG_FILE_NAME = "config.json"
LOGS_FOLDER_NAME = "logs"
LAUNCHER_LOG_NAME = "launcher.log"

_FILES = (TOKEN_FILE_NAME, CONFIG_FILE_NAME, LAUNCHER_LOG_NAME, RUN_FILE_NAME)


def foreign_entries(directory: Path) -> list[str]:
    """What a folder holds that no run put there."""
    own = {*_FILES, LOGS_FOLDER_NAME}
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
    shutil.rmtree(directory / LOGS_FOLDER_NAME, ignore_errors=True)
    for name in _FILES:
        for path in (directory / name, *directory.glob(f".{name}.*")):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()
