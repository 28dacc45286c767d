"""Calling uv: the real binary, no interpreter downloads, the cache before the network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from nemo_gym.launch.errors import VenvError
from nemo_gym.launch.linux import IS_LINUX

_running: set[subprocess.Popen[str]] = set()
_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"


@dataclass(frozen=True)
class UvResult:
    """What uv wrote; it writes nearly all of it to stderr."""

    code: int
    output: str

    @property
    def reason(self) -> str:
        """Why it failed: one line that ends like a sentence."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        told = [line for line in lines if not line.startswith(("Using ", "Resolved ", "hint:"))]
        text = " ".join(re.sub(r"^(error|cause|×|╰─▶|├─▶|│):?\s*", "", line) for line in told)
        return f"{text.rstrip('.') or f'uv ended with code {self.code}'}."


@dataclass(frozen=True)
class Uv:
    """uv with the run's cache and lock settings."""

    cache_dir: str | None = None
    lock_timeout: str | None = None
    verbose: bool = False

    def run(self, arguments: Sequence[str], *, directory: Path, stdin: str = "") -> UvResult:
        """One call, interpreted from `directory` so that its `[tool.uv]` table counts."""
        command = [find_uv(), *arguments, "--color", "never", "--no-progress", *(["-v"] if self.verbose else [])]
        with subprocess.Popen(
            _dying_with_us(command),
            cwd=directory,
            env=self._environment(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as popen:
            _running.add(popen)
            try:
                output, _ = popen.communicate(stdin)
            finally:
                _running.discard(popen)
        return UvResult(popen.returncode, output)

    def run_offline_first(self, arguments: Sequence[str], *, directory: Path, stdin: str = "") -> UvResult:
        """The same from the cache alone, and with the network only when that fails."""
        offline = self.run([*arguments, "--offline"], directory=directory, stdin=stdin)
        if offline.code == 0 or os.environ.get("UV_OFFLINE", "").lower() in ("1", "true", "yes"):
            return offline
        return self.run(arguments, directory=directory, stdin=stdin)

    def _environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        dropped = ("VIRTUAL_ENV", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_COMPILE_BYTECODE")
        environment = {name: value for name, value in inherited.items() if name not in dropped}
        environment["UV_PYTHON_DOWNLOADS"] = "never"
        if self.cache_dir and can_write_below(Path(self.cache_dir)):
            environment["UV_CACHE_DIR"] = self.cache_dir
        if self.lock_timeout:
            environment["UV_LOCK_TIMEOUT"] = self.lock_timeout
        return environment


def can_write_below(folder: Path) -> bool:
    """Whether the folder, or the nearest one above it that exists, lets us add to it: another user may have made it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return not folder.is_dir() or os.access(folder, os.W_OK | os.X_OK)


def end_running() -> None:
    """End every uv that some thread of ours waits for."""
    for popen in list(_running):
        popen.kill()


def _dying_with_us(command: Sequence[str]) -> list[str]:
    """The command, killed by the kernel when we are: an installation nobody waits for must not go on."""
    if not IS_LINUX:
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, *command]


@lru_cache(maxsize=1)
def find_uv() -> str:
    """The uv binary that our own distribution brought, else the one on PATH. Raises VenvError when there is none."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise VenvError("uv isn't installed, and a server needs packages of its own: `pip install uv`.")
    return found
