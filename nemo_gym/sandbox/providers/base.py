"""What a sandbox is made from, what running something in it gives, and what a provider does."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from nemo_gym.sandbox.errors import (
    SandboxConfigError,
    SandboxCreateError,
    SandboxCreateVerificationError,
    SandboxPtyError,
)

__all__ = [
    "CANNOT_RUN",
    "ConnectableProvider",
    "ExecResult",
    "SandboxCreateError",
    "SandboxCreateVerificationError",
    "SandboxEndpoint",
    "SandboxExecResult",
    "SandboxHandle",
    "SandboxProvider",
    "SandboxPtyError",
    "SandboxPtySession",
    "SandboxPtySpec",
    "SandboxResources",
    "SandboxSpec",
    "SandboxStatus",
    "SupportsSandboxBackgroundServices",
    "SupportsSandboxEndpoint",
    "SupportsSandboxNetwork",
    "SupportsSandboxPauseResume",
    "SupportsSandboxPortForwarding",
    "SupportsSandboxPty",
    "SupportsSandboxPtyAttach",
    "SupportsSandboxRuntimeRequirements",
    "SupportsSandboxSharedStorage",
]

CANNOT_RUN = 125
"""The return code of a command that was not run, or not to its end."""

_COERCE: dict[str, type] = {"cpu": float, "memory_mib": int, "disk_gib": int, "gpu": int, "gpu_type": str}


class SandboxStatus(str, enum.Enum):  # noqa: UP042 - the contract: members are plain text, also when formatted
    """Where a sandbox is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxResources:
    """How much of the machine a sandbox may use; None leaves it to the provider."""

    cpu: float | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None
    gpu: int | None = None
    gpu_type: str | None = None

    @classmethod
    def from_mapping(cls, resources: Mapping[str, Any] | None) -> SandboxResources:
        """From config values, numbers in text included. Raises SandboxConfigError (a ValueError) naming the key."""
        values = dict(resources or {})
        if unknown := sorted(set(values) - set(_COERCE)):
            raise SandboxConfigError(f"Unknown sandbox resources {', '.join(unknown)}: known are {', '.join(_COERCE)}.")
        try:
            return cls(**{key: _COERCE[key](value) for key, value in values.items() if value is not None})
        except (TypeError, ValueError) as error:
            raise SandboxConfigError(f"Sandbox resources {values} are no numbers: {error}.") from error


@dataclass(frozen=True)
class SandboxSpec:
    """The sandbox that is wanted. `files` maps paths in it to text; times are in seconds."""

    image: str | None = None
    ttl_s: int | float | None = None
    ready_timeout_s: int | float | None = None
    workdir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    resources: SandboxResources | Mapping[str, Any] = field(default_factory=SandboxResources)
    entrypoint: list[str] | None = None
    provider_options: dict[str, Any] = field(default_factory=dict)
    ports: tuple[int, ...] | list[int] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not isinstance(self.resources, SandboxResources):
            object.__setattr__(self, "resources", SandboxResources.from_mapping(self.resources))
        object.__setattr__(self, "ports", _ports(self.ports))

    @property
    def limits(self) -> SandboxResources:
        """`resources`, whose declared type also admits what it was given as."""
        assert isinstance(self.resources, SandboxResources)
        return self.resources


def _ports(values: Any) -> tuple[int, ...]:
    ports = tuple(_port(value) for value in values)
    if len(set(ports)) != len(ports):
        raise SandboxConfigError(f"Sandbox ports {list(ports)} name a port twice.")
    return ports


def _port(value: Any) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and value.isascii() and value.isdigit()):
        port = int(value)
        if 1 <= port <= 65535:
            return port
    raise SandboxConfigError(f"Sandbox port {value!r} is no number from 1 to 65535.")


@dataclass
class SandboxHandle:
    """A sandbox as its provider knows it; `raw` is the provider's own."""

    sandbox_id: str
    provider_name: str
    raw: Any


@dataclass(frozen=True)
class SandboxExecResult:
    """What a command did.

    `error_type` is None when it ran to its end, whatever `return_code` says; `timeout` when it was ended for taking
    too long; `sandbox` when it could not be run; `pty` when its terminal failed.
    """

    stdout: str | None
    stderr: str | None
    return_code: int
    error_type: str | None = None


ExecResult = SandboxExecResult


@dataclass(frozen=True)
class SandboxEndpoint:
    """Where a port of a sandbox is reached: an absolute URL and the headers it asks for."""

    endpoint: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SandboxPtySpec:
    """A terminal that is wanted; None as command is the user's shell."""

    command: str | None = None
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    rows: int = 24
    cols: int = 80
    user: str | int | None = None
    pty: bool = True


class SandboxPtySession(Protocol):
    """An open terminal."""

    @property
    def session_id(self) -> str:
        """What `attach` finds it by."""

    async def write(self, data: bytes) -> None:
        """Type."""

    async def read(self) -> bytes:
        """What was shown since, waiting for some; empty at the end."""

    async def close(self) -> None:
        """Hang up."""


@runtime_checkable
class SandboxProvider(Protocol):
    """Creates sandboxes and runs things in them."""

    name: ClassVar[str]

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """A sandbox that is usable. Raises SandboxCreateError."""

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
        """Run a shell command. None as timeout is the provider's default."""

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file of this machine into the sandbox, making the folders it needs."""

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file out of the sandbox."""

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Where the sandbox is in its life."""

    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox; ending it twice is fine."""

    async def aclose(self) -> None:
        """Release what the provider itself holds."""


@runtime_checkable
class ConnectableProvider(Protocol):
    """Sandboxes can be handed to another process as a JSON descriptor."""

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]: ...

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle: ...


@runtime_checkable
class SupportsSandboxEndpoint(Protocol):
    """Ports of a sandbox are reached from outside."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint: ...


@runtime_checkable
class SupportsSandboxPauseResume(Protocol):
    """Sandboxes can be frozen and thawed."""

    async def pause(self, handle: SandboxHandle) -> None: ...

    async def resume(self, handle: SandboxHandle) -> None: ...


@runtime_checkable
class SupportsSandboxPty(Protocol):
    """Terminals can be opened."""

    async def create_pty(self, handle: SandboxHandle, spec: SandboxPtySpec) -> SandboxPtySession: ...


@runtime_checkable
class SupportsSandboxPtyAttach(Protocol):
    """Open terminals can be found again."""

    async def attach_pty(
        self, handle: SandboxHandle, session_id: str, *, takeover: bool = True, since: int | None = None
    ) -> SandboxPtySession: ...


@runtime_checkable
class SupportsSandboxBackgroundServices(Protocol):
    """A command may leave services running behind it."""

    async def exec_with_background_services(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult: ...


@runtime_checkable
class SupportsSandboxNetwork(Protocol):
    """Sandboxes reach each other by name."""

    def validate_networking(self) -> None: ...

    async def network_address(self, handle: SandboxHandle) -> str: ...

    async def set_hosts(self, handle: SandboxHandle, hosts: Mapping[str, str]) -> None: ...


@runtime_checkable
class SupportsSandboxRuntimeRequirements(Protocol):
    """Sandboxes can be given Linux capabilities and shared memory."""

    def validate_runtime_requirements(self, *, cap_add: list[str], shm_size: str | None) -> None: ...

    def configure_runtime(self, spec: SandboxSpec, *, cap_add: list[str], shm_size: str | None) -> SandboxSpec: ...


@runtime_checkable
class SupportsSandboxPortForwarding(Protocol):
    """Ports of one sandbox appear in another."""

    def validate_port_forwarding(self) -> None: ...

    async def forward_ports(self, source: SandboxHandle, target: SandboxHandle, ports: list[int]) -> None: ...


@runtime_checkable
class SupportsSandboxSharedStorage(Protocol):
    """Sandboxes share volumes."""

    def shared_volume_options(self, volumes: Mapping[str, str]) -> dict[str, Any]: ...

    def shared_volume_metadata(self, volumes: Mapping[str, str]) -> dict[str, str]: ...


def config_from(cls: type[Any], values: Any, what: str) -> Any:
    """A config dataclass from itself, a mapping of its fields or None. Raises SandboxConfigError naming wrong keys."""
    if isinstance(values, cls):
        return values
    if values is not None and not isinstance(values, Mapping):
        raise SandboxConfigError(f"{what} must be a mapping, not {type(values).__name__}.")
    known = [option.name for option in fields(cls)]
    if unknown := sorted(set(map(str, values or {})) - set(known)):
        raise SandboxConfigError(f"{what} has no {', '.join(unknown)}: known are {', '.join(known)}.")
    return cls(**dict(values or {}))
