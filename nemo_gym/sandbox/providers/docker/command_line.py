"""The `docker` command lines of a sandbox. Values of environment variables travel in the program's own environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.sandbox.errors import SandboxConfigError
from nemo_gym.sandbox.providers.base import SandboxSpec
from nemo_gym.sandbox.providers.probes import Probe

DOCKER = "docker"
SANDBOX_LABEL = "nemo-gym.sandbox"
EXEC_VARIABLE = "NEMO_GYM_SANDBOX_EXEC_ID"
DEFAULT_KEEPALIVE_SHELL = "/bin/sh"
DEFAULT_KEEPALIVE_CMD = "while :; do sleep 2147483647; done"

_READ_BY_DOCKER = frozenset({"PATH", "HOME"})


@dataclass(frozen=True)
class DockerCreateConfig:
    """How containers are made. `extra_run_args` go to `docker run` before the image."""

    keepalive_shell: str = DEFAULT_KEEPALIVE_SHELL
    keepalive_cmd: str = DEFAULT_KEEPALIVE_CMD
    start_timeout_s: float | None = 600
    use_init: bool = True
    network: str | None = None
    read_only: bool = False
    cap_drop: list[str] = field(default_factory=list)
    security_opt: list[str] = field(default_factory=list)
    pids_limit: int | None = None
    extra_run_args: list[str] = field(default_factory=list)
    apply_resource_limits: bool = True
    publish_host: str = "127.0.0.1"


@dataclass(frozen=True)
class DockerExecConfig:
    """How commands are run. None as `exec_shell` is bash where the image has it, else sh."""

    default_timeout_s: float = 180
    extra_exec_args: list[str] = field(default_factory=list)
    concurrency: int = 32
    exec_shell: str | None = None


@dataclass(frozen=True)
class DockerProbeConfig(Probe):
    """What a container must answer before it is handed out."""


def run_argv(name: str, spec: SandboxSpec, config: DockerCreateConfig, labels: Mapping[str, str]) -> list[str]:
    """Start a container that stays until it is removed, or for `spec.ttl_s` seconds. Raises SandboxConfigError."""
    if not spec.image:
        raise SandboxConfigError("The sandbox provider `docker` needs an `image` in the sandbox spec.")
    options = _options(spec)
    argv = [DOCKER, "run", "--detach", "--name", name]
    argv += [f"--label={key}={value}" for key, value in {SANDBOX_LABEL: "1", **labels, **spec.metadata}.items()]
    argv += ["--rm"] if spec.ttl_s and not spec.entrypoint else []
    argv += _confinement(config)
    argv += _limits(spec) if config.apply_resource_limits else []
    argv += [f"--publish={config.publish_host}::{port}" for port in spec.ports]
    argv += [f"--volume={volume}" for volume in options["volumes"]]
    argv += ["--workdir", spec.workdir] if spec.workdir else []
    argv += env_args(spec.env)
    argv += [*config.extra_run_args, *options["run_args"]]
    return [*argv, *_command(spec, config)]


def exec_argv(
    name: str, command: list[str], *, cwd: str | None, env: Mapping[str, str], user: str | int | None, stdin: bool
) -> list[str]:
    """Run a program in a container."""
    argv = [DOCKER, "exec"]
    argv += ["--interactive"] if stdin else []
    argv += ["--workdir", cwd] if cwd else []
    argv += ["--user", "0" if user in ("root", 0, "0") else str(user)] if user is not None else []
    return [*argv, *env_args(env), name, *command]


def kill_argv(name: str, exec_id: str) -> list[str]:
    """End whatever inherited an exec id inside a container; what `docker exec` doesn't do when it ends itself."""
    script = (
        f"for p in /proc/[0-9]*; do if tr '\\0' '\\n' < $p/environ 2>/dev/null | "
        f"grep -qx '{EXEC_VARIABLE}={exec_id}'; then kill -9 ${{p#/proc/}} 2>/dev/null; fi; done"
    )
    return exec_argv(name, ["sh", "-c", script], cwd=None, env={}, user=0, stdin=False)


def env_args(env: Mapping[str, str]) -> list[str]:
    """Names only: docker reads the values from its environment, except of variables that would change itself."""
    return [f"--env={name}={value}" if _is_read_by_docker(name) else f"--env={name}" for name, value in env.items()]


def client_env(env: Mapping[str, str]) -> dict[str, str]:
    """The part of `env` that `env_args` names without values."""
    return {name: value for name, value in env.items() if not _is_read_by_docker(name)}


def _is_read_by_docker(name: str) -> bool:
    return name in _READ_BY_DOCKER or name.startswith(("DOCKER_", "LD_"))


def _options(spec: SandboxSpec) -> dict[str, list[Any]]:
    known = ("volumes", "run_args")
    if unknown := sorted(set(spec.provider_options) - set(known)):
        raise SandboxConfigError(f"The sandbox provider `docker` has no options {unknown}: known are {list(known)}.")
    return {name: list(spec.provider_options.get(name) or ()) for name in known}


def _confinement(config: DockerCreateConfig) -> list[str]:
    argv = ["--init"] if config.use_init else []
    argv += ["--network", config.network] if config.network else []
    argv += ["--read-only"] if config.read_only else []
    argv += [f"--cap-drop={capability}" for capability in config.cap_drop]
    argv += [f"--security-opt={option}" for option in config.security_opt]
    return [*argv, *(["--pids-limit", str(config.pids_limit)] if config.pids_limit else [])]


def _limits(spec: SandboxSpec) -> list[str]:
    limits = spec.limits
    argv = [f"--cpus={limits.cpu:g}"] if limits.cpu else []
    argv += [f"--memory={limits.memory_mib}m", f"--memory-swap={limits.memory_mib}m"] if limits.memory_mib else []
    return [*argv, *([f"--gpus={limits.gpu}"] if limits.gpu else [])]


def _command(spec: SandboxSpec, config: DockerCreateConfig) -> list[str]:
    assert spec.image is not None
    if spec.entrypoint:
        return ["--entrypoint", spec.entrypoint[0], spec.image, *spec.entrypoint[1:]]
    keepalive = f"sleep {spec.ttl_s:g}" if spec.ttl_s else config.keepalive_cmd
    return ["--entrypoint", config.keepalive_shell, spec.image, "-c", keepalive]
