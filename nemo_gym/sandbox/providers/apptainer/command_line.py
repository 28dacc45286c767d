"""The `apptainer` command lines of a sandbox, and the file its environment is read from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.sandbox.errors import SandboxConfigError
from nemo_gym.sandbox.providers.base import SandboxSpec
from nemo_gym.sandbox.providers.probes import Probe

DEFAULT_MOUNT_POINT = "/sandbox"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFUSED = frozenset({"EUID", "GID", "HOME", "IFS", "OPTIND", "PWD", "UID"})
_ROOT = ("root", "0", 0)


@dataclass(frozen=True)
class ApptainerExecConfig:
    """How commands are run. `default_binds` (`source:target[:ro]`) are there in every instance."""

    default_timeout_s: float = 180
    timeout_grace_s: float = 15
    fakeroot_for_root: bool = True
    default_binds: list[str] = field(default_factory=list)
    extra_exec_args: list[str] = field(default_factory=list)
    concurrency: int = 32


@dataclass(frozen=True)
class ApptainerCreateConfig:
    """How instances are started. A private folder of the host appears at `mount_point`, for copying files."""

    mount_point: str = DEFAULT_MOUNT_POINT
    start_timeout_s: float | None = 600
    extra_start_args: list[str] = field(default_factory=list)
    apply_resource_limits: bool = True


@dataclass(frozen=True)
class ApptainerProbeConfig(Probe):
    """What an instance must answer before it is handed out."""


def start_argv(
    binary: str, name: str, spec: SandboxSpec, staging: Path, create: ApptainerCreateConfig, exec: ApptainerExecConfig
) -> list[str]:
    """Start an instance. Raises SandboxConfigError for a spec without image or with unknown options."""
    if not spec.image:
        raise SandboxConfigError("The sandbox provider `apptainer` needs an `image` in the sandbox spec.")
    if unknown := sorted(set(spec.provider_options) - {"binds"}):
        raise SandboxConfigError(f"The sandbox provider `apptainer` has no options {unknown}: known are ['binds'].")
    binds = [f"{staging}:{create.mount_point}", *exec.default_binds, *(spec.provider_options.get("binds") or ())]
    argv = [binary, "instance", "start"]
    argv += [part for bind in binds for part in ("--bind", bind)]
    argv += ["--nv"] if spec.limits.gpu else []
    argv += _limits(spec, create)
    return [*argv, *create.extra_start_args, spec.image, name]


def exec_argv(
    binary: str,
    name: str,
    command: str,
    config: ApptainerExecConfig,
    *,
    cwd: str | None,
    env_file: Path | None,
    user: str | int | None,
) -> list[str]:
    """Run a shell command in an instance. Root is faked; other users are reached from a faked root."""
    argv = [binary, "exec"]
    argv += ["--no-eval", "--env-file", str(env_file)] if env_file else []
    argv += ["--pwd", cwd] if cwd else []
    argv += ["--fakeroot"] if user is not None and (user not in _ROOT or config.fakeroot_for_root) else []
    argv += [*config.extra_exec_args, f"instance://{name}"]
    if user is not None and user not in _ROOT:
        return [*argv, "su", "-s", "/bin/sh", str(user), "-c", command]
    return [*argv, "sh", "-c", command]


def env_file_text(env: Mapping[str, str]) -> str:
    """A file of assignments for the shell that reads it. Raises SandboxConfigError for what it could not assign."""
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise SandboxConfigError(f"{name!r} is no name of an environment variable.")
        if name in _REFUSED:
            raise SandboxConfigError(f"The environment variable {name} can't be set in an Apptainer instance.")
        if "\0" in value:
            raise SandboxConfigError(f"The environment variable {name} holds a NUL character.")
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in env.items())


def _limits(spec: SandboxSpec, create: ApptainerCreateConfig) -> list[str]:
    """Cgroup limits, which a faked root can't have."""
    if not create.apply_resource_limits or "--fakeroot" in create.extra_start_args:
        return []
    argv = ["--cpus", f"{spec.limits.cpu:g}"] if spec.limits.cpu else []
    return [*argv, *(["--memory", f"{spec.limits.memory_mib}M"] if spec.limits.memory_mib else [])]
