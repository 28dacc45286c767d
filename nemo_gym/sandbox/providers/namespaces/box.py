"""What a program finds around it: the parts of this machine it sees, its own folders, and its limits."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from nemo_gym.sandbox.errors import SandboxPathError

Way = Literal["plain", "mapped", "own"]
"""How namespaces are made: see `enter_pid_namespace` in the jail."""

MIB = 1024 * 1024
WORK = "/sandbox"
_SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr")
_ETC = (
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "pki/tls",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
_MADE_FILES = {
    "/etc/group": b"sandbox:x:1000:\n",
    "/etc/hostname": b"sandbox\n",
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    "/etc/passwd": b"sandbox:x:1000:1000::/sandbox:/bin/sh\n",
}


@dataclass(frozen=True)
class Limits:
    """How much a program may use; None as a number of seconds or MiB is no limit.

    CPU seconds, memory (address space; with a writable cgroup also the memory of all its processes together), open
    files and file size hold for each process, `processes` for all of them, `disk_mib` and `disk_files` for its folders
    and `shm_mib` for /dev/shm.
    """

    wall_s: float | None = 30.0
    cpu_s: int | None = 30
    memory_mib: int | None = 2048
    processes: int | None = 64
    open_files: int = 256
    file_mib: int = 64
    disk_mib: int = 256
    disk_files: int = 10_000
    shm_mib: int = 64

    def spec(self, *, isolate: bool) -> dict[str, Any]:
        """Plain data for the jail."""
        processes = self.processes if isolate and _counts_processes_per_namespace() else None
        return {
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "memory_bytes": None if self.memory_mib is None or sys.platform == "darwin" else self.memory_mib * MIB,
            "processes": processes,
            "open_files": self.open_files,
            "file_bytes": self.file_mib * MIB,
            "core_bytes": 0,
            "disk_bytes": self.disk_mib * MIB,
            "disk_files": self.disk_files,
            "shm_bytes": self.shm_mib * MIB,
        }


def open_spec(limits: Limits, folder: Path) -> dict[str, Any]:
    """For running without isolation, in a folder: the limits that hold for single processes, and no others."""
    return {
        "isolate": False,
        "cgroups": [],
        "limits": limits.spec(isolate=False),
        "watched": [str(folder)],
    }


@dataclass(frozen=True)
class Box:
    """Where a program runs. `folders` are folders of this machine by their path in the box, which stay; without them
    `/sandbox` and `/tmp` are in memory and end with the program. `files` are put into `/sandbox` first, `read_only` are
    further paths of this machine to see, at their own place."""

    limits: Limits = field(default_factory=Limits)
    folders: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    read_only: Sequence[str] = ()

    def spec(self, way: Way, uid: int | None, cgroups: Sequence[str] = ()) -> dict[str, Any]:
        """Plain data for the jail. `uid` is the user of this machine to become, None for the way `own`.

        Raises SandboxPathError for a file name that leads out of `/sandbox`.
        """
        seen, links = system_view()
        own = [WORK, "/tmp"] if not self.folders else []
        limits = self.limits.spec(isolate=True)
        return {
            "isolate": True,
            "way": way,
            "uid": uid,
            "cgroups": list(cgroups),
            "limits": limits,
            "links": list(links),
            "read_only": [(path, path) for path in outermost([*seen, *self.read_only])],
            "writable": [(str(source), path) for path, source in self.folders.items()],
            "watched": [str(source) for source in self.folders.values()],
            "tmpfs": [(path, limits["disk_bytes"], limits["disk_files"]) for path in own],
            "files": [*_MADE_FILES.items()],
            "own_files": [(f"{WORK}/{relative_name(name)}", content) for name, content in self.files.items()],
        }


def relative_name(name: str) -> str:
    """A file name that stays where it is put. Raises SandboxPathError for absolute ones, `..` and empty ones."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", "..") for part in parts):
        raise SandboxPathError(f"{name!r} is no file name inside the sandbox: use a relative path without `..`.")
    return "/".join(part for part in parts if part != ".")


def interpreter() -> str:
    """The Python that programs run with: this one, outside of any virtual environment."""
    return os.path.realpath(sys.executable)


def search_path() -> str:
    """`PATH` in a box."""
    return os.pathsep.join([str(Path(interpreter()).parent), "/usr/local/bin", "/usr/bin", "/bin"])


def package_folders() -> list[str]:
    """Where this process imports installed packages from: for `read_only`, and as `PYTHONPATH`."""
    return [path for path in sys.path if path.endswith("-packages") and Path(path).is_dir()]


@cache
def system_view() -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Folders of this machine that every program sees, and links of its root."""
    seen, links = [], []
    for path in (Path("/") / name for name in _SYSTEM):
        if path.is_symlink():
            links.append((str(path), str(path.readlink())))
        elif path.is_dir():
            seen.append(str(path))
    seen += [str(path) for name in _ETC if (path := Path("/etc") / name).exists()]
    seen += [str(Path(prefix).resolve()) for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    return tuple(outermost(seen)), tuple(links)


def outermost(paths: Sequence[str]) -> list[str]:
    """The paths that are not inside another one, in order."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{other}/") for other in kept):
            kept.append(path)
    return kept


@cache
def _counts_processes_per_namespace() -> bool:
    """Before Linux 5.14 the limit counts every process of the user, wherever it runs."""
    numbers = platform.release().split(".")[:2]
    return sys.platform == "linux" and tuple(int("".join(filter(str.isdigit, n)) or 0) for n in numbers) >= (5, 14)
