"""A container for each sandbox, through the `docker` program."""

from __future__ import annotations

import contextlib
import logging
import os
import posixpath
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym.sandbox.attribution import resolve_attribution
from nemo_gym.sandbox.errors import SandboxCreateError, SandboxError
from nemo_gym.sandbox.processes import Program, one_of
from nemo_gym.sandbox.providers.base import (
    CANNOT_RUN,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    config_from,
)
from nemo_gym.sandbox.providers.docker.command_line import (
    DEFAULT_KEEPALIVE_CMD,
    DEFAULT_KEEPALIVE_SHELL,
    DOCKER,
    EXEC_VARIABLE,
    DockerCreateConfig,
    DockerExecConfig,
    DockerProbeConfig,
    client_env,
    exec_argv,
    kill_argv,
    run_argv,
)
from nemo_gym.sandbox.providers.programs import masked, run_program

__all__ = [
    "DEFAULT_KEEPALIVE_CMD",
    "DEFAULT_KEEPALIVE_SHELL",
    "Container",
    "DockerCreateConfig",
    "DockerExecConfig",
    "DockerProbeConfig",
    "DockerProvider",
]

_HINT = "install Docker's command line, or choose another sandbox provider."
_CLIENT_TIMEOUT_S = 60.0
_COPY_TIMEOUT_S = 1800.0
_GONE = ("no such container", "is not running", "is paused", "cannot connect to the docker daemon", "oci runtime exec")
_STATUS = {
    "created": SandboxStatus.STARTING,
    "restarting": SandboxStatus.STARTING,
    "running": SandboxStatus.RUNNING,
    "paused": SandboxStatus.PAUSED,
    "removing": SandboxStatus.STOPPED,
    "exited": SandboxStatus.STOPPED,
    "dead": SandboxStatus.ERROR,
}

_log = logging.getLogger(__name__)


@dataclass
class Container:
    """A container by name, with the shell found in it."""

    name: str
    shell: str | None = None


class DockerProvider:
    """Containers on the daemon that the `docker` program talks to. Sections of options are given as in the config."""

    name: ClassVar[str] = "docker"

    def __init__(
        self,
        *,
        exec: DockerExecConfig | Mapping[str, Any] | None = None,
        create: DockerCreateConfig | Mapping[str, Any] | None = None,
        probe: DockerProbeConfig | Mapping[str, Any] | None = None,
    ) -> None:
        self._exec: DockerExecConfig = config_from(DockerExecConfig, exec, "docker.exec")
        self._create: DockerCreateConfig = config_from(DockerCreateConfig, create, "docker.create")
        self._probe: DockerProbeConfig = config_from(DockerProbeConfig, probe, "docker.probe")

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a container and wait until it answers.

        Raises SandboxCreateError, SandboxUnavailableError without the program, SandboxConfigError for a wrong spec.
        """
        if spec.entrypoint and spec.ttl_s:
            _log.warning("The sandbox provider `docker` ignores ttl_s for a spec with an entrypoint.")
        name = f"nemo-gym-{secrets.token_hex(6)}"
        labels = {f"nemo-gym.{key}": value for key, value in resolve_attribution().items()}
        argv = run_argv(name, spec, self._create, labels)
        started = await self._run(argv, timeout_s=self._create.start_timeout_s, env=spec.env)
        handle = SandboxHandle(name, self.name, Container(name))
        if started.return_code != 0:
            await self._cleanup_failed_create_handle(handle)
            reason = masked((started.stderr or "").strip(), spec.env)
            raise SandboxCreateError(f"The container of {spec.image} was not started: {reason}")
        try:
            await self._verify_created_handle(handle)
        except BaseException:
            await self._cleanup_failed_create_handle(handle)
            raise
        return handle

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]:
        """What `connect` needs."""
        return {"provider": self.name, "sandbox_id": handle.sandbox_id}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """The running container of a descriptor. Raises SandboxError when it isn't running."""
        name = str(descriptor["sandbox_id"])
        handle = SandboxHandle(name, self.name, Container(name))
        if (status := await self.status(handle)) is not SandboxStatus.RUNNING:
            raise SandboxError(f"The container {name} can't be connected to: it is {status.value}.")
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
        """Run a shell command; what it started is killed when its time is over."""
        container = _container(handle)
        name = container.name
        shell = container.shell = container.shell or await self._resolve_shell(name)
        exec_id = secrets.token_hex(8)
        seen = {**(env or {}), EXEC_VARIABLE: exec_id}
        argv = exec_argv(name, [shell, "-c", command], cwd=cwd, env=seen, user=user, stdin=stdin is not None)
        argv[2:2] = self._exec.extra_exec_args
        timeout = self._exec.default_timeout_s if timeout_s is None else timeout_s
        async with one_of(self._exec.concurrency, self.name):
            result = await self._run(argv, timeout_s=timeout, stdin=stdin, env=seen)
            if result.error_type == "timeout":
                await self._run(kill_argv(name, exec_id), timeout_s=_CLIENT_TIMEOUT_S)
        return _told_apart(result)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file in, making its folder as root. Raises SandboxError with docker's reason."""
        name = _container(handle).name
        folder = posixpath.dirname(target_path)
        if folder:
            argv = exec_argv(name, ["mkdir", "-p", folder], cwd=None, env={}, user=0, stdin=False)
            _require(await self._run(argv, timeout_s=_CLIENT_TIMEOUT_S), f"{folder} can't be made in {name}")
        argv = [DOCKER, "cp", str(source_path), f"{name}:{target_path}"]
        _require(await self._run(argv, timeout_s=_COPY_TIMEOUT_S), f"{source_path} can't be copied to {name}")

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file out. Raises SandboxError with docker's reason."""
        name = _container(handle).name
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        argv = [DOCKER, "cp", f"{name}:{source_path}", str(target_path)]
        _require(await self._run(argv, timeout_s=_COPY_TIMEOUT_S), f"{source_path} can't be copied from {name}")

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """What the daemon says of the container."""
        argv = [DOCKER, "inspect", "--format", "{{.State.Status}}", _container(handle).name]
        result = await self._run(argv, timeout_s=_CLIENT_TIMEOUT_S)
        if result.return_code != 0:
            is_gone = "no such" in (result.stderr or "").lower()
            return SandboxStatus.STOPPED if is_gone else SandboxStatus.UNKNOWN
        return _STATUS.get((result.stdout or "").strip(), SandboxStatus.UNKNOWN)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Where a published port is reached on this machine."""
        argv = [DOCKER, "port", _container(handle).name, f"{port}/tcp"]
        result = await self._run(argv, timeout_s=_CLIENT_TIMEOUT_S)
        _require(result, f"port {port} of {handle.sandbox_id} is not published")
        address = (result.stdout or "").split()[0]
        return SandboxEndpoint(f"http://{address}")

    async def close(self, handle: SandboxHandle) -> None:
        """Remove the container; one that is gone is fine. Raises SandboxError when it stays."""
        await self._force_remove(_container(handle).name)

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _run(
        self,
        argv: list[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SandboxExecResult:
        program = Program(argv, env={**os.environ, **client_env(env or {})}, stdin=stdin)
        return await run_program(program, timeout_s, _HINT)

    async def _resolve_shell(self, name: str) -> str:
        if self._exec.exec_shell is not None:
            return self._exec.exec_shell
        argv = exec_argv(name, ["sh", "-c", "command -v bash"], cwd=None, env={}, user=None, stdin=False)
        found = await self._run(argv, timeout_s=_CLIENT_TIMEOUT_S)
        return "bash" if found.return_code == 0 and (found.stdout or "").strip() else "sh"

    async def _verify_created_handle(self, handle: SandboxHandle) -> None:
        async def run(command: str, timeout_s: float) -> SandboxExecResult:
            return await self.exec(handle, command, timeout_s=timeout_s)

        await self._probe.verify(run, handle.sandbox_id)

    async def _cleanup_failed_create_handle(self, handle: SandboxHandle) -> None:
        with contextlib.suppress(SandboxError):
            await self._force_remove(handle.sandbox_id)

    async def _force_remove(self, name: str) -> None:
        result = await self._run([DOCKER, "rm", "--force", "--volumes", name], timeout_s=_CLIENT_TIMEOUT_S)
        if "no such container" not in (result.stderr or "").lower():
            _require(result, f"the container {name} can't be removed")


def _container(handle: SandboxHandle) -> Container:
    """The handle's container; a handle made by hand stands for the container of its id."""
    return handle.raw if isinstance(handle.raw, Container) else Container(handle.sandbox_id)


def _told_apart(result: SandboxExecResult) -> SandboxExecResult:
    """A failure of docker itself as error type `sandbox`, since its exit codes look like a command's."""
    stderr = (result.stderr or "").lower()
    is_dockers = stderr.startswith(("error response from daemon", "error: no such container", "cannot connect"))
    if result.error_type is None and result.return_code != 0 and is_dockers and any(text in stderr for text in _GONE):
        return SandboxExecResult(result.stdout, result.stderr, CANNOT_RUN, "sandbox")
    return result


def _require(result: SandboxExecResult, problem: str) -> None:
    if result.return_code != 0:
        raise SandboxError(f"{problem[0].upper()}{problem[1:]}: {(result.stderr or '').strip()}")
