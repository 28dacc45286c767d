"""The installation that runs us: what every component's packages are laid over."""

from __future__ import annotations

import hashlib
import importlib.metadata
import site
import sys
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

DISTRIBUTION = "nemo-gym"


@dataclass(frozen=True)
class Base:
    """The base interpreter. `home` is where its own python, outside any venv, lives."""

    executable: Path
    home_executable: Path
    prefix: Path
    version: str
    site_directories: tuple[Path, ...]

    @cached_property
    def fingerprint(self) -> str:
        """Changes when a package is installed, removed or replaced."""
        names = [name for folder in self.site_directories for name in _distributions(folder)]
        text = "\n".join([str(self.executable), self.version, *sorted(names)])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def library(self) -> str:
        """The folder of modules below a prefix, such as `lib/python3.11/site-packages`."""
        return f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


@lru_cache(maxsize=1)
def this_installation() -> Base:
    """The interpreter we run on."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    own = getattr(sys, "_base_executable", None) or sys.executable
    return Base(
        executable=Path(sys.executable),
        home_executable=Path(own).resolve(),
        prefix=Path(sys.prefix),
        version=".".join(map(str, sys.version_info[:3])),
        site_directories=tuple(path for path in map(Path, folders) if path.is_dir()),
    )


def installed_version() -> str | None:
    """What the installed metadata call our version; None when we run from a tree that was never installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def extra_requires_something(extra: str) -> bool:
    """Whether an extra of ours names any package."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(f"extra == '{extra}'" in line.replace('"', "'") for line in lines)


def _distributions(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith((".dist-info", ".egg-info", ".pth"))]
