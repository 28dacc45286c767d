"""The container's tree, built once, and places to run its commands in: as root or another user, without an index."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.harness import ROOT, Workplace

NOBODY = 65534
_DEAD_INDEX = "http://127.0.0.1:9/simple"


@dataclass
class Tree:
    """What `docker/build_tree.sh` made under `prefix`."""

    prefix: Path

    @property
    def source(self) -> Path:
        return self.prefix / "opt/Gym"

    @property
    def gym(self) -> Path:
        return self.prefix / "usr/local/bin/gym"

    @property
    def python(self) -> Path:
        return self.prefix / "opt/gym-cli-venv/bin/python"

    @property
    def venvs(self) -> Path:
        return self.prefix / "opt/gym-venvs"


@contextmanager
def built(python: str) -> Iterator[Tree]:
    """A tree anybody may read, without bytecode so that it is soon done."""
    folder = Path(tempfile.mkdtemp(prefix="gym-tree-"))
    folder.chmod(0o755)
    environment = {**os.environ, "GYM_COMPILE_BYTECODE": "0", "UV_LINK_MODE": "hardlink"}
    environment.pop("PYTHONPATH", None)
    try:
        made = subprocess.run(
            [str(ROOT / "docker/build_tree.sh"), str(folder), python],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        yield Tree(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class ContainerPlace(Workplace):
    """Runs the tree's commands as a container would: its `gym` on PATH, no venv, no index, no cache."""

    tree: Tree = field(kw_only=True)
    user: int | None = None
    home: Path = field(kw_only=True)

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.tree.prefix}/usr/local/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runs),
            "TMPDIR": str(self.home),
            "UV_CACHE_DIR": str(self.home / "uv"),
            "UV_INDEX_URL": _DEAD_INDEX,
            "UV_DEFAULT_INDEX": _DEAD_INDEX,
            "PIP_INDEX_URL": _DEAD_INDEX,
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def shell(self, command: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """A line as somebody types it into `docker exec gym bash -c '…'`."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            user=self.user,
            group=self.user,
            **options,
        )


@contextmanager
def somewhere(tree: Tree, folder: Path, user: int | None = None) -> Iterator[ContainerPlace]:
    """A user's place with `folder` as working directory and a home of its own."""
    home = Path(tempfile.mkdtemp(prefix="gym-home-"))
    (home / "runs").mkdir()
    if user is not None:
        for path in (home, home / "runs"):
            os.chown(path, user, user)
    try:
        yield ContainerPlace(folder, tree=tree, user=user, home=home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
