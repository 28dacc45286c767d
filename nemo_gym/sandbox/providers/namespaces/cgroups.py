"""Memory and process limits over everything a program starts, where the control groups of this machine may be used."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from nemo_gym.sandbox.providers.namespaces.box import MIB, Limits

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "nemo-gym-"
_TRIES = 200
_STALE_SECONDS = 3600.0


@dataclass
class Cgroup:
    """The groups of one program; `folders` is empty where there are none to be had."""

    folders: list[str] = field(default_factory=list)

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel ended a process of it for memory."""
        return any(_kills(Path(folder)) > 0 for folder in self.folders)


@contextlib.asynccontextmanager
async def cgroup(limits: Limits) -> AsyncIterator[Cgroup]:
    """A group with the limits on memory and processes, gone at the end."""
    group = Cgroup()
    try:
        for parent in parents():
            folder = Path(parent) / f"{_PREFIX}{secrets.token_hex(6)}"
            with contextlib.suppress(OSError):
                folder.mkdir()
                group.folders.append(str(folder))
                _set(folder, limits)
        yield group
    finally:
        for name in group.folders:
            await _removed(Path(name))


async def _removed(folder: Path) -> None:
    """Processes that were killed leave it a moment later."""
    for _ in range(_TRIES):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        else:
            return
        await asyncio.sleep(0.01)


@cache
def parents() -> tuple[str, ...]:
    """Folders where groups can be made: one of version 2, or one for each controller of version 1; none elsewhere."""
    own = _own_groups()
    if "" in own:
        folder = _below(ROOT, own[""])
        return (str(folder),) if _delegates(folder) and _works(folder) else ()
    folders = [_below(ROOT / name, own[name]) for name in ("memory", "pids") if name in own]
    return tuple(str(folder) for folder in folders if _works(folder))


def _own_groups() -> dict[str, str]:
    """This process's group by controller; the empty name is version 2, left out where version 1 has the controllers."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, names, path = line.split(":", 2)
            groups |= dict.fromkeys(names.split(","), path)
    if "memory" in groups:
        groups.pop("", None)
    return groups


def _below(root: Path, path: str) -> Path:
    """The group's folder; in a container without a namespace of its own the root is that already."""
    folder = root / path.lstrip("/")
    return folder if folder.is_dir() else root


def _delegates(folder: Path) -> bool:
    """Whether groups below a version 2 group have the controllers, which one with processes in it may not pass on."""
    try:
        control = folder / "cgroup.subtree_control"
        if not {"memory", "pids"} <= set(control.read_text(encoding="ascii").split()):
            control.write_text("+memory +pids", encoding="ascii")
    except OSError:
        return False
    return True


def _works(parent: Path) -> bool:
    folder = parent / f"{_PREFIX}{secrets.token_hex(6)}"
    try:
        _sweep(parent)
        folder.mkdir()
        try:
            _set(folder, Limits())
        finally:
            folder.rmdir()
    except OSError:
        return False
    return True


def _sweep(parent: Path) -> None:
    """Remove what killed processes have left behind; a group with processes stays."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                folder.rmdir()


def _set(folder: Path, limits: Limits) -> None:
    """Raises OSError where the kernel refuses."""
    if limits.processes is not None and (folder / "pids.max").exists():
        (folder / "pids.max").write_text(str(limits.processes), encoding="ascii")
    if limits.memory_mib is None:
        return
    size = str(limits.memory_mib * MIB)
    for name, value in (
        ("memory.max", size),
        ("memory.swap.max", "0"),
        ("memory.limit_in_bytes", size),
        ("memory.memsw.limit_in_bytes", size),
    ):
        if (folder / name).exists():
            (folder / name).write_text(value, encoding="ascii")


def _kills(folder: Path) -> int:
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            lines = (folder / name).read_text(encoding="ascii").splitlines()
            return int(dict(line.split(maxsplit=1) for line in lines).get("oom_kill", 0))
    return 0
