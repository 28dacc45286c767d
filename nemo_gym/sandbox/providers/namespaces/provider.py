"""Commands in namespaces of this machine: isolation without images, daemons or privileges."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from nemo_gym.sandbox.errors import SandboxConfigError, SandboxCreateError, SandboxPathError
from nemo_gym.sandbox.processes import MAX_OUTPUT_BYTES, one_of
from nemo_gym.sandbox.providers.base import (
    CANNOT_RUN,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    config_from,
)
from nemo_gym.sandbox.providers.namespaces.availability import required_isolation
from nemo_gym.sandbox.providers.namespaces.box import WORK, Box, Limits, Way, search_path
from nemo_gym.sandbox.providers.namespaces.cgroups import cgroup
from nemo_gym.sandbox.providers.namespaces.files import copy_in, copy_out
from nemo_gym.sandbox.providers.namespaces.launch import Ended, Jailed

_log = logging.getLogger(__name__)
_LIMIT_NOTES = {
    "wall": "The command was ended after {wall:g} s.",
    "disk": "The command was ended: its files took more than the limits `disk_mib` or `disk_files` allow.",
    "memory": "A process of the command was ended: together they took more memory than the limit `memory_mib` allows.",
}


@dataclass(frozen=True)
class Room:
    """The folders of a sandbox on this machine by their path inside, and who its commands run as."""

    path: Path
    folders: Mapping[str, Path]
    workdir: str
    way: Way
    uid: int | None
    env: Mapping[str, str]
    limits: Limits


class NamespacesProvider:
    """Runs commands in user, mount, pid, net, ipc and uts namespaces of their own.

    They have no network but a loopback, an empty environment but for `spec.env`, this machine's programs read-only, a
    work folder and a /tmp that last as long as the sandbox, and the limits. A command ends with everything it started.
    `limits` are fields of `Limits`; `read_only_paths` are further paths to see. Raises SandboxConfigError.
    """

    name: ClassVar[str] = "namespaces"

    def __init__(
        self,
        workspace_root: str | None = None,
        shell: str = "/bin/bash",
        default_timeout_s: float = 180.0,
        concurrency: int = 8,
        *,
        limits: Mapping[str, Any] | Limits | None = None,
        read_only_paths: Sequence[str] = (),
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> None:
        if concurrency < 1:
            raise SandboxConfigError(f"concurrency must be at least 1, not {concurrency}.")
        self._root = Path(workspace_root or tempfile.gettempdir()).absolute()
        self._shell = shell
        self._default_timeout_s = default_timeout_s
        self._concurrency = concurrency
        default = {"cpu_s": None, "processes": 512, "disk_mib": 2048, "disk_files": 100_000, "file_mib": 1024}
        given = limits if isinstance(limits, Limits) else {**default, "open_files": 1024, **(limits or {})}
        self._limits: Limits = config_from(Limits, given, "`limits` of the sandbox provider `namespaces`")
        self._read_only = tuple(read_only_paths)
        self._max_output_bytes = max_output_bytes

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Make the folders. `spec.workdir` is a path inside, `/sandbox` by default.

        Raises SandboxUnavailableError with what to do where the kernel forbids namespaces, SandboxCreateError.
        """
        isolation = await asyncio.to_thread(required_isolation)
        _warn(spec)
        sandbox_id = f"namespaces-{secrets.token_hex(6)}"
        workdir = _inside_path(spec.workdir or WORK)
        path = self._root / sandbox_id
        room = Room(
            path=path,
            folders={workdir: path / "work", "/tmp": path / "tmp"},
            workdir=workdir,
            way=isolation.way,
            uid=isolation.new_uid(),
            env=dict(spec.env),
            limits=_limits(self._limits, spec),
        )
        try:
            await asyncio.to_thread(_make, room)
        except OSError as error:
            raise SandboxCreateError(f"The sandbox's folder {path} can't be made: {error.strerror}.") from error
        return SandboxHandle(sandbox_id, self.name, room)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a shell command; a relative `cwd` is below the work folder. Raises SandboxConfigError for a user."""
        if user is not None:
            raise SandboxConfigError(f"The sandbox provider `namespaces` has one user: {user!r} can't be chosen.")
        room = self._room(handle)
        limits = replace(room.limits, wall_s=self._default_timeout_s if timeout_s is None else timeout_s)
        own = {"HOME": room.workdir, "LANG": "C.UTF-8", "PATH": search_path(), "TMPDIR": "/tmp"}
        async with one_of(self._concurrency, self.name), cgroup(limits) as group:
            box = Box(limits, folders=room.folders, read_only=self._read_only)
            done = await Jailed(
                argv=[self._shell, "-c", command],
                spec=box.spec(room.way, room.uid, group.folders),
                cwd=str(PurePosixPath(room.workdir) / (cwd or "")),
                env={**own, **room.env, **(env or {})},
                max_output_bytes=self._max_output_bytes,
            ).run()
            if group.ran_out_of_memory() and not done.ended_for:
                done = replace(done, ended_for="memory")
        return _result(done, limits)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file in. Raises SandboxPathError for a target outside the sandbox's folders, by links too."""
        room = self._room(handle)
        folder, name = _place(room, target_path)
        await asyncio.to_thread(copy_in, Path(source_path), folder, name, room.uid)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file out. Raises SandboxPathError for a source outside the sandbox's folders, by links too."""
        folder, name = _place(self._room(handle), source_path)
        await asyncio.to_thread(copy_out, folder, name, Path(target_path))

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Running as long as its folders are there."""
        return SandboxStatus.RUNNING if self._room(handle).path.is_dir() else SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        """Delete the folders: no command outlives its `exec`."""
        await asyncio.to_thread(_delete, self._room(handle).path)

    async def aclose(self) -> None:
        """Nothing is held."""

    def _room(self, handle: SandboxHandle) -> Room:
        if not isinstance(handle.raw, Room):
            raise SandboxConfigError(f"The sandbox {handle.sandbox_id} is not one of the provider `namespaces`.")
        return handle.raw


def _inside_path(path: str) -> str:
    pure = PurePosixPath(path)
    taken = {"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "tmp", "usr"}
    if not pure.is_absolute() or ".." in pure.parts or len(pure.parts) < 2 or pure.parts[1] in taken:
        raise SandboxConfigError(
            f"The workdir {path!r} can't be one of the sandbox provider `namespaces`: use an absolute path outside of "
            f"the system's folders, such as {WORK}."
        )
    return str(pure)


def _limits(limits: Limits, spec: SandboxSpec) -> Limits:
    wanted: dict[str, Any] = {}
    if spec.limits.memory_mib is not None:
        wanted["memory_mib"] = spec.limits.memory_mib
    if spec.limits.disk_gib is not None:
        wanted["disk_mib"] = spec.limits.disk_gib * 1024
    return replace(limits, **wanted)


def _make(room: Room) -> None:
    room.path.mkdir(mode=0o711 if room.uid is not None else 0o700, parents=True)
    for folder in room.folders.values():
        folder.mkdir(mode=0o700)
        if room.uid is not None:
            os.chown(folder, room.uid, room.uid)


def _place(room: Room, path: str) -> tuple[Path, PurePosixPath]:
    """The folder of this machine, and the path below it, that a path inside means."""
    whole = PurePosixPath(os.path.normpath(PurePosixPath(room.workdir) / path))
    for inside, folder in room.folders.items():
        if whole.is_relative_to(inside) and whole != PurePosixPath(inside):
            return folder, whole.relative_to(inside)
    raise SandboxPathError(f"{path} is outside the sandbox's folders: use a path inside {' or '.join(room.folders)}.")


def _result(done: Ended, limits: Limits) -> SandboxExecResult:
    stdout, stderr = (stream.decode("utf-8", errors="replace") for stream in (done.stdout, done.stderr))
    if done.error:
        return SandboxExecResult(stdout, f"The command could not be run: {done.error}", CANNOT_RUN, "sandbox")
    if done.ended_for:
        note = _LIMIT_NOTES[done.ended_for].format(wall=limits.wall_s)
        stderr = f"{stderr.rstrip()}\n{note}".lstrip()
    if done.ended_for == "wall":
        return SandboxExecResult(stdout, stderr, CANNOT_RUN, "timeout")
    return SandboxExecResult(stdout, stderr, done.return_code)


def _warn(spec: SandboxSpec) -> None:
    values = {
        "image": spec.image,
        "ttl_s": spec.ttl_s,
        "ports": spec.ports,
        "entrypoint": spec.entrypoint,
        "resources.cpu": spec.limits.cpu,
        "resources.gpu": spec.limits.gpu,
    }
    if ignored := [name for name, value in values.items() if value]:
        _log.warning("The sandbox provider `namespaces` ignores %s.", ", ".join(ignored))


def _delete(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        _log.warning("The sandbox's folder %s could not be deleted.", path)
