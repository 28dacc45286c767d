"""The part of a Compose file that sandboxes can follow, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.errors import SandboxConfigError

CONDITIONS = ("service_started", "service_healthy", "service_completed_successfully")

_TOP_LEVEL = frozenset({"name", "version", "services", "volumes"})
_FIELDS = frozenset(
    {
        "image",
        "command",
        "environment",
        "working_dir",
        "depends_on",
        "expose",
        "healthcheck",
        "hostname",
        "container_name",
        "mem_limit",
        "cpus",
        "x-sandbox",
    }
)


class UnsupportedComposeField(NotImplementedError, SandboxConfigError):
    """A field of a Compose file that sandboxes can't follow."""


@dataclass(frozen=True)
class Healthcheck:
    """A command that ends with 0 once the service is usable."""

    command: str
    interval_s: float = 30.0
    retries: int = 3


@dataclass(frozen=True)
class Service:
    """One service: a sandbox with a command running in it. `depends_on` maps services to the condition awaited."""

    name: str
    image: str
    command: str
    env: dict[str, str] = field(default_factory=dict)
    workdir: str | None = None
    depends_on: dict[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    healthcheck: Healthcheck | None = None
    aliases: tuple[str, ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    gets_hosts: bool = True


def read_compose_file(path: Path) -> list[Service]:
    """The services in an order that respects who depends on whom.

    Raises SandboxConfigError naming file, service and field; it is a NotImplementedError too where Compose would allow
    what is there.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SandboxConfigError(f"The Compose file {path} can't be read: {error}") from error
    blocks = content.get("services") if isinstance(content, dict) else None
    if not isinstance(blocks, dict) or not blocks:
        raise SandboxConfigError(f"{path} has no services.")
    if unknown := sorted(set(content) - _TOP_LEVEL):
        raise UnsupportedComposeField(f"{path}: {', '.join(unknown)} can't be followed by sandboxes.")
    if content.get("volumes"):
        raise UnsupportedComposeField(f"{path}: named volumes can't be followed by these sandboxes.")
    services = {name: _service(path, str(name), block) for name, block in blocks.items()}
    return [services[name] for name in _ordered(path, services)]


def _service(path: Path, name: str, block: Any) -> Service:
    place = f"{path}: the service `{name}`"
    if not isinstance(block, dict):
        raise SandboxConfigError(f"{place} is no mapping.")
    if unknown := sorted(set(block) - _FIELDS):
        raise UnsupportedComposeField(f"{place} has {', '.join(unknown)}, which sandboxes can't follow.")
    for required in ("image", "command"):
        if not block.get(required):
            raise SandboxConfigError(f"{place} has no {required}.")
    extension = _mapping(place, "x-sandbox", block.get("x-sandbox"))
    limits = {"cpu": block.get("cpus"), "memory_mib": _mebibytes(place, block.get("mem_limit"))}
    return Service(
        name=name,
        image=str(block["image"]),
        command=_command(block["command"]),
        env={key: str(value) for key, value in _mapping(place, "environment", block.get("environment")).items()},
        workdir=block.get("working_dir"),
        depends_on=_conditions(place, block.get("depends_on")),
        ports=tuple(int(port) for port in block.get("expose") or ()),
        healthcheck=_healthcheck(place, block.get("healthcheck")),
        aliases=tuple(str(block[key]) for key in ("hostname", "container_name") if block.get(key)),
        resources={key: value for key, value in limits.items() if value is not None},
        gets_hosts=extension.get("hosts") != [],
    )


def _mapping(place: str, field_name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SandboxConfigError(f"{place}: `{field_name}` must be a mapping.")
    return {str(key): item for key, item in value.items()}


def _command(value: Any) -> str:
    import shlex

    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def _conditions(place: str, value: Any) -> dict[str, str]:
    conditions = {
        name: (wanted or {}).get("condition", CONDITIONS[0])
        for name, wanted in _mapping(place, "depends_on", value).items()
    }
    if wrong := sorted({condition for condition in conditions.values() if condition not in CONDITIONS}):
        raise SandboxConfigError(f"{place} awaits {', '.join(wrong)}; conditions are {', '.join(CONDITIONS)}.")
    return conditions


def _healthcheck(place: str, value: Any) -> Healthcheck | None:
    check = _mapping(place, "healthcheck", value)
    test = check.get("test")
    if not test:
        return None
    if isinstance(test, list) and test[:1] in (["CMD"], ["CMD-SHELL"]):
        command = _command(test[1:]) if test[0] == "CMD" else " ".join(map(str, test[1:]))
    elif isinstance(test, str):
        command = test
    else:
        raise SandboxConfigError(f"{place}: `healthcheck.test` must be text, or start with CMD or CMD-SHELL.")
    return Healthcheck(command, _seconds(place, check.get("interval", "30s")), int(check.get("retries", 3)))


def _seconds(place: str, value: Any) -> float:
    text = str(value)
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("", 1.0)):
        number = text.removesuffix(unit) if unit and text.endswith(unit) else (text if not unit else None)
        if number is not None and number.replace(".", "", 1).isdigit():
            return float(number) * factor
    raise SandboxConfigError(f"{place}: {value!r} is no duration such as 5s.")


def _mebibytes(place: str, value: Any) -> int | None:
    if value is None:
        return None
    text = str(value).lower().removesuffix("b")
    units = {"k": 1 / 1024, "m": 1.0, "g": 1024.0}
    number, factor = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1 / 1024**2)
    if not number.replace(".", "", 1).isdigit():
        raise SandboxConfigError(f"{place}: {value!r} is no size such as 512m.")
    return max(1, int(float(number) * factor))


def _ordered(path: Path, services: Mapping[str, Service]) -> list[str]:
    for service in services.values():
        if missing := sorted(set(service.depends_on) - set(services)):
            raise SandboxConfigError(f"{path}: the service `{service.name}` depends on {', '.join(missing)}, unknown.")
    try:
        return list(TopologicalSorter({name: services[name].depends_on for name in services}).static_order())
    except CycleError as error:
        raise SandboxConfigError(f"{path}: services depend on each other: {' -> '.join(error.args[1])}.") from error
