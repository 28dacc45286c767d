"""Commands on this machine in a folder each: no isolation, for tests and trusted code."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from nemo_gym.sandbox.environment import host_environment
from nemo_gym.sandbox.errors import (
    SandboxConfigError,
    SandboxCreateError,
    SandboxPathError,
    SandboxUnavailableError,
)
from nemo_gym.sandbox.process_tree import kill_tree
from nemo_gym.sandbox.processes import MAX_OUTPUT_BYTES, Program, one_of
from nemo_gym.sandbox.providers.base import (
    CANNOT_RUN,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.programs import run_program

SANDBOX_VARIABLE = "NEMO_GYM_SANDBOX_ID"
EXEC_VARIABLE = "NEMO_GYM_SANDBOX_EXEC_ID"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workspace:
    """The folder of a sandbox; one that was the caller's already stays when the sandbox ends."""

    path: Path
    is_callers: bool
    env: dict[str, str] = field(default_factory=dict)


class LocalProvider:
    """Runs commands as this user in a folder of this machine.

    Commands see an allow-list of the host's variables (`pass_env` adds names, `inherit_env` passes all), and end with
    everything they started when their time is over or the sandbox is closed. Up- and downloads stay inside the folder
    unless `confine_paths` is off. What commands do is not confined at all.
    """

    name: ClassVar[str] = "local"
    _warned: ClassVar[bool] = False

    def __init__(
        self,
        workspace_root: str | None = None,
        shell: str = "/bin/bash",
        default_timeout_s: float = 180.0,
        concurrency: int = 8,
        *,
        inherit_env: bool = False,
        pass_env: Sequence[str] = (),
        confine_paths: bool = True,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> None:
        if concurrency < 1:
            raise SandboxConfigError(f"concurrency must be at least 1, not {concurrency}.")
        self._root = Path(workspace_root or tempfile.gettempdir())
        self._shell = shell
        self._default_timeout_s = default_timeout_s
        self._concurrency = concurrency
        self._inherit_env = inherit_env
        self._pass_env = tuple(pass_env)
        self._confine_paths = confine_paths
        self._max_output_bytes = max_output_bytes

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Make the folder: `spec.workdir`, which is kept at the end, else a private one below the root.

        Raises SandboxCreateError when it can't be made.
        """
        self._warn(spec)
        sandbox_id = f"local-{secrets.token_hex(6)}"
        path = Path(spec.workdir).absolute() if spec.workdir else self._root.absolute() / sandbox_id
        try:
            path.mkdir(mode=0o755 if spec.workdir else 0o700, parents=True, exist_ok=bool(spec.workdir))
        except OSError as error:
            raise SandboxCreateError(f"The sandbox's folder {path} can't be made: {error.strerror}.") from error
        return SandboxHandle(sandbox_id, self.name, Workspace(path, spec.workdir is not None, dict(spec.env)))

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
        """Run a shell command; a relative `cwd` is below the folder. Raises ValueError for another user."""
        if user is not None:
            raise SandboxConfigError(f"The sandbox provider `local` runs commands as this user, not as {user!r}.")
        exec_id = secrets.token_hex(8)
        program = Program(
            argv=self._argv(handle, command),
            cwd=self._workspace(handle).path / (cwd or ""),
            env={**self._environment(handle), **(env or {}), EXEC_VARIABLE: exec_id},
            marker=f"{EXEC_VARIABLE}={exec_id}",
            max_output_bytes=self._max_output_bytes,
        )
        timeout = self._default_timeout_s if timeout_s is None else timeout_s
        async with one_of(self._concurrency, self.name):
            return await _result(program, timeout)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file into the folder. Raises SandboxPathError for a target outside it."""
        target = self._place(handle, target_path)
        await asyncio.to_thread(_copy, Path(source_path), target)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file out of the folder. Raises SandboxPathError for a source outside it."""
        source = self._place(handle, source_path)
        await asyncio.to_thread(_copy, source, Path(target_path))

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Running as long as the folder is there."""
        return SandboxStatus.RUNNING if self._workspace(handle).path.is_dir() else SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        """End what commands left running, and delete the folder unless it was the caller's."""
        workspace = self._workspace(handle)
        await asyncio.to_thread(kill_tree, None, f"{SANDBOX_VARIABLE}={handle.sandbox_id}")
        if not workspace.is_callers:
            await asyncio.to_thread(_delete, workspace.path)

    async def aclose(self) -> None:
        """Nothing is held."""

    def _argv(self, handle: SandboxHandle, command: str) -> list[str]:
        """What is started for a command: the place for a provider that puts isolation around it."""
        return [self._shell, "-c", command]

    def _environment(self, handle: SandboxHandle) -> dict[str, str]:
        host = host_environment(everything=self._inherit_env, also=self._pass_env)
        return {**host, **self._workspace(handle).env, SANDBOX_VARIABLE: handle.sandbox_id}

    def _workspace(self, handle: SandboxHandle) -> Workspace:
        workspace = handle.raw
        if not isinstance(workspace, Workspace):
            raise SandboxConfigError(f"The sandbox {handle.sandbox_id} is not one of the provider `local`.")
        return workspace

    def _place(self, handle: SandboxHandle, path: str) -> Path:
        folder = self._workspace(handle).path.resolve()
        place = (folder / path).resolve()
        if self._confine_paths and not place.is_relative_to(folder):
            raise SandboxPathError(
                f"{path} is outside the sandbox's folder {folder}: use a path inside it, or set "
                f"`confine_paths: false` for the provider `local`."
            )
        return place

    def _warn(self, spec: SandboxSpec) -> None:
        if not LocalProvider._warned:
            LocalProvider._warned = True
            _log.warning("The sandbox provider `local` isolates nothing: commands run as this user on this machine.")
        values = {
            "image": spec.image,
            "ttl_s": spec.ttl_s,
            "ready_timeout_s": spec.ready_timeout_s,
            "ports": spec.ports,
            "entrypoint": spec.entrypoint,
            "resources": any(value is not None for value in vars(spec.limits).values()),
        }
        if ignored := [name for name, value in values.items() if value]:
            _log.warning("The sandbox provider `local` ignores %s.", ", ".join(ignored))


async def _result(program: Program, timeout_s: float) -> SandboxExecResult:
    try:
        return await run_program(program, timeout_s, "check `shell` and `cwd`.")
    except SandboxUnavailableError as error:
        return SandboxExecResult(None, str(error), CANNOT_RUN, "sandbox")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


def _delete(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        _log.warning("The sandbox's folder %s could not be deleted.", path)
