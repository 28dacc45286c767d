"""Fetches the reference implementation of IFBench: `python setup_ifbench.py`. The server never does that by itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nemo_gym.errors import GymError

REPOSITORY = "https://github.com/allenai/IFBench.git"
COMMIT = "1d62c1d6dc4f6608938d22424c46edef6ce50671"
"""What git fetches for this is what was published under it: the name is its checksum."""

FOLDER = Path(__file__).parent / ".ifbench"
MARKER = ".installed"


class IFBenchSetupError(GymError):
    """The reference implementation can't be fetched."""


def is_installed(folder: Path = FOLDER) -> bool:
    """Whether the reference implementation is there, complete."""
    return (folder / MARKER).is_file() and (folder / "instructions_registry.py").is_file()


def ensure_ifbench(folder: Path = FOLDER, repository: str = REPOSITORY, commit: str = COMMIT) -> Path:
    """Fetch the reference implementation if it isn't there, all of it or nothing, and return its folder.

    Raises IFBenchSetupError.
    """
    if is_installed(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".ifbench-") as place:
        new = Path(place, "new")
        new.mkdir()
        _git(new, "init", "--quiet")
        _git(new, "fetch", "--quiet", "--depth", "1", repository, commit)
        _git(new, "checkout", "--quiet", "--detach", commit)
        if not (new / "instructions_registry.py").is_file():
            raise IFBenchSetupError(f"{repository} at {commit} has no instructions_registry.py.")
        (new / MARKER).write_text(f"{commit}\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    return folder


def _git(folder: Path, *arguments: str) -> None:
    try:
        ended = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise IFBenchSetupError(f"IFBench is fetched with git, which can't be run: {error}") from error
    if ended.returncode:
        raise IFBenchSetupError(f"git {arguments[0]} failed: {ended.stderr.strip()}")


if __name__ == "__main__":
    try:
        print(f"IFBench is in {ensure_ifbench()}")
    except GymError as error:
        sys.exit(f"Error: {error}")
