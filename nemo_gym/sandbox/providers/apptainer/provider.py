"""An Apptainer instance for each sandbox, through the `apptainer` program."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import posixpath
import secrets
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym.sandbox.environment import passed_environment
from nemo_gym.sandbox.errors import SandboxCreateError, SandboxError, SandboxPathError, SandboxUnavailableError
from nemo_gym.sandbox.processes import Program, one_of
from nemo_gym.sandbox.providers.apptainer.command_line import (
    DEFAULT_MOUNT_POINT,
    ApptainerCreateConfig,
    ApptainerExecConfig,
    ApptainerProbeConfig,
    env_file_text,
    exec_argv,
    start_argv,
)
from nemo_gym.sandbox.providers.base import (
    CANNOT_RUN,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    config_from,
)
from nemo_gym.sandbox.providers.programs import masked, run_program

__all__ = [
    "ApptainerCreateConfig",
    "ApptainerExecConfig",
    "ApptainerProbeConfig",
    "ApptainerProvider",
    "Instance",
]

PROGRAM = "apptainer"
_EXEC_VARIABLE = "NEMO_GYM_SANDBOX_EXEC_ID"
_HINT = "install Apptainer, name its folder with `bin_path`, or choose another sandbox provider."
_TIMEOUT_S = 60.0

_log = logging.getLogger(__name__)


@dataclass
class Instance:
    """An instance by name, with the folder of the host that it sees at its mount point."""

    name: str
    staging: Path
    mount_point: str = DEFAULT_MOUNT_POINT
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)


def _require_apptainer(bin_path: str | None = None) -> str:
    """The program, in the folder `bin_path` or on PATH. Raises SandboxUnavailableError, a RuntimeError."""
    found = shutil.which(PROGRAM, path=bin_path)
    if found is None:
        raise SandboxUnavailableError(f"`{PROGRAM}` was not found in {bin_path or 'PATH'}: {_HINT}")
    return found


def _binary(bin_path: str | None) -> str:
    """What `_require_apptainer` finds; tests replace it by functions with and without a parameter or a result."""
    find: Any = _require_apptainer
    found = find(bin_path) if inspect.signature(find).parameters else find()
    return str(found) if isinstance(found, str | Path) else PROGRAM


class ApptainerProvider:
    """Instances of this user on this host. Sections of options are given as in the config."""

    name: ClassVar[str] = "apptainer"

    def __init__(
        self,
        *,
        exec: ApptainerExecConfig | Mapping[str, Any] | None = None,
        create: ApptainerCreateConfig | Mapping[str, Any] | None = None,
        probe: ApptainerProbeConfig | Mapping[str, Any] | None = None,
        bin_path: str | None = None,
    ) -> None:
        self._exec: ApptainerExecConfig = config_from(ApptainerExecConfig, exec, "apptainer.exec")
        self._create: ApptainerCreateConfig = config_from(ApptainerCreateConfig, create, "apptainer.create")
        self._probe: ApptainerProbeConfig = config_from(ApptainerProbeConfig, probe, "apptainer.probe")
        self._binary = _binary(bin_path)

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start an instance and wait until it answers. Raises SandboxCreateError, SandboxConfigError."""
        if spec.ttl_s:
            _log.warning("The sandbox provider `apptainer` ignores ttl_s.")
        env_file_text(spec.env)
        name = f"nemo-gym-{secrets.token_hex(6)}"
        staging = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        instance = Instance(name, staging, self._create.mount_point, spec.image, dict(spec.env))
        handle = SandboxHandle(name, self.name, instance)
        try:
            argv = start_argv(self._binary, name, spec, staging, self._create, self._exec)
            started = await self._run(argv, timeout_s=self._create.start_timeout_s, daemonize=True)
            if started.return_code != 0:
                reason = masked((started.stderr or "").strip(), spec.env)
                raise SandboxCreateError(f"The instance of {spec.image} was not started: {reason}")
            await self._verify_created_handle(handle)
        except BaseException:
            await self._cleanup_failed_create_handle(handle)
            raise
        return handle

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]:
        """What `connect` needs, on the same host as the same user."""
        instance = _instance(handle)
        return {
            "provider": self.name,
            "sandbox_id": handle.sandbox_id,
            "hostname": socket.gethostname(),
            "uid": os.getuid(),
            "staging_dir": str(instance.staging),
            "mount_point": instance.mount_point,
            "image": instance.image,
            "env": dict(instance.env),
        }

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """The running instance of a descriptor. Raises SandboxError elsewhere, for another user, or when it ended."""
        name = str(descriptor["sandbox_id"])
        own = (socket.gethostname(), os.getuid())
        if (descriptor["hostname"], descriptor["uid"]) != own:
            raise SandboxError(f"The instance {name} belongs to {descriptor['hostname']}, user {descriptor['uid']}.")
        instance = Instance(
            name,
            Path(descriptor["staging_dir"]),
            descriptor["mount_point"],
            descriptor.get("image"),
            dict(descriptor.get("env") or {}),
        )
        handle = SandboxHandle(name, self.name, instance)
        if (status := await self.status(handle)) is not SandboxStatus.RUNNING:
            raise SandboxError(f"The instance {name} can't be connected to: it is {status.value}.")
        return handle

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = None,
        user: str | int | None = None,
        stdin: bytes | None = None,
    ) -> SandboxExecResult:
        """Run a shell command; what it started is killed when its time and a grace are over."""
        instance = _instance(handle)
        timeout = self._exec.default_timeout_s if timeout_s is None else timeout_s
        with _env_file({**instance.env, **(env or {})}) as env_file:
            argv = exec_argv(self._binary, instance.name, command, self._exec, cwd=cwd, env_file=env_file, user=user)
            async with one_of(self._exec.concurrency, self.name):
                result = await self._run(argv, timeout_s=timeout + self._exec.timeout_grace_s, stdin=stdin)
        if result.return_code == 255 and "no instance found" in (result.stderr or "").lower():
            return SandboxExecResult(result.stdout, result.stderr, CANNOT_RUN, "sandbox")
        return result

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file in, making its folder. Raises SandboxError with the reason."""
        if (direct := _staged(handle, target_path)) is not None:
            await asyncio.to_thread(_copy, Path(source_path), direct)
            return
        with _passage(handle) as (outside, inside):
            await asyncio.to_thread(_copy, Path(source_path), outside)
            folder = posixpath.dirname(target_path) or "."
            await self._inside(handle, f"mkdir -p {shlex.quote(folder)} && cp {inside} {shlex.quote(target_path)}")

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file out. Raises SandboxError with the reason."""
        if (direct := _staged(handle, source_path)) is not None:
            await asyncio.to_thread(_copy, direct, Path(target_path))
            return
        with _passage(handle) as (outside, inside):
            await self._inside(handle, f"cp {shlex.quote(source_path)} {inside}")
            await asyncio.to_thread(_copy, outside, Path(target_path))

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Running as long as Apptainer lists the instance."""
        argv = [self._binary, "instance", "list", "--json", handle.sandbox_id]
        result = await self._run(argv, timeout_s=_TIMEOUT_S)
        if result.return_code != 0:
            return SandboxStatus.UNKNOWN
        try:
            listed = json.loads(result.stdout or "{}").get("instances") or []
        except (json.JSONDecodeError, AttributeError):
            return SandboxStatus.UNKNOWN
        is_listed = any(entry.get("instance") == handle.sandbox_id for entry in listed)
        return SandboxStatus.RUNNING if is_listed else SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the instance and delete its folder; one that is gone is fine. Raises SandboxError when it stays."""
        result = await self._run([self._binary, "instance", "stop", handle.sandbox_id], timeout_s=_TIMEOUT_S)
        if result.return_code != 0 and "no instance found" not in (result.stderr or "").lower():
            raise SandboxError(f"The instance {handle.sandbox_id} can't be stopped: {(result.stderr or '').strip()}")
        await asyncio.to_thread(shutil.rmtree, _instance(handle).staging, ignore_errors=True)

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _run(
        self, argv: list[str], *, timeout_s: float | None, stdin: bytes | None = None, daemonize: bool = False
    ) -> SandboxExecResult:
        if daemonize:
            return await self._run_daemonizing(argv, timeout_s=timeout_s)
        # Apptainer hands its environment on to what runs inside, where the marker finds it again.
        exec_id = secrets.token_hex(8)
        env = {**passed_environment(), _EXEC_VARIABLE: exec_id}
        program = Program(argv, env=env, stdin=stdin, marker=f"{_EXEC_VARIABLE}={exec_id}")
        return await run_program(program, timeout_s, _HINT)

    async def _run_daemonizing(self, argv: list[str], *, timeout_s: float | None) -> SandboxExecResult:
        return await run_program(Program(argv, env=passed_environment(), daemonizes=True), timeout_s, _HINT)

    async def _inside(self, handle: SandboxHandle, command: str) -> None:
        result = await self.exec(handle, command)
        if result.return_code != 0:
            raise SandboxError(f"Copying with {handle.sandbox_id} failed: {(result.stderr or '').strip()}")

    async def _verify_created_handle(self, handle: SandboxHandle) -> None:
        async def run(command: str, timeout_s: float) -> SandboxExecResult:
            return await self.exec(handle, command, timeout_s=timeout_s)

        await self._probe.verify(run, handle.sandbox_id)

    async def _cleanup_failed_create_handle(self, handle: SandboxHandle) -> None:
        with contextlib.suppress(SandboxError):
            await self.close(handle)
        await asyncio.to_thread(shutil.rmtree, _instance(handle).staging, ignore_errors=True)


def _instance(handle: SandboxHandle) -> Instance:
    if not isinstance(handle.raw, Instance):
        raise SandboxError(f"The sandbox {handle.sandbox_id} is not one of the provider `apptainer`.")
    return handle.raw


def _staged(handle: SandboxHandle, path: str) -> Path | None:
    """The host's place of a path at the mount point. Raises SandboxPathError when links lead it elsewhere."""
    instance = _instance(handle)
    inside = posixpath.normpath(path)
    if not inside.startswith(f"{instance.mount_point.rstrip('/')}/"):
        return None
    staging = instance.staging.resolve()
    place = staging / posixpath.relpath(inside, instance.mount_point)
    if place.resolve() != place:
        raise SandboxPathError(f"{path} leads through a link: copy from the place it points to.")
    return place


@contextlib.contextmanager
def _passage(handle: SandboxHandle) -> Iterator[tuple[Path, str]]:
    """A file of the staging folder for one copy: its place on the host, and its path inside."""
    name = f".copy-{secrets.token_hex(6)}"
    instance = _instance(handle)
    outside = instance.staging / name
    try:
        yield outside, posixpath.join(instance.mount_point, name)
    finally:
        outside.unlink(missing_ok=True)


@contextlib.contextmanager
def _env_file(env: Mapping[str, str]) -> Iterator[Path | None]:
    """A private file of the variables, None for none."""
    if not env:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", prefix="nemo-gym-env-", encoding="utf-8") as file:
        file.write(env_file_text(env))
        file.flush()
        yield Path(file.name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)
