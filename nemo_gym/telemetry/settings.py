"""What is exported and where to: the `telemetry:` block of a config, and the environment it travels in to servers."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = "NEMO_GYM_OTEL_"
FALLBACK_PREFIX = "NEMO_LENS_"
"""Read where the first has no value: 0.7's tracing package has these."""

DEFAULT_SERVICE_NAME = "nemo-gym"
SERVICE_NAME_ENV = "OTEL_SERVICE_NAME"
OTLP_PREFIX = "OTEL_EXPORTER_OTLP_"

SPAN_GROUPS = frozenset({"job", "server", "http_client", "rollout", "verify", "agent", "model_call", "sandbox"})
SPAN_GROUP_PRESETS: Mapping[str, frozenset[str]] = {
    "default": frozenset({"job", "server", "http_client", "rollout"}),
    "per_rollout": frozenset({"verify", "agent", "model_call", "server", "http_client", "rollout"}),
    "all": SPAN_GROUPS,
}

_TRUE = frozenset({"1", "true", "yes", "on"})
_SWITCHES = ("traces_enabled", "metrics_enabled", "logs_enabled", "service_name_per_server", "instrument_aiohttp")


def configure_telemetry_env(
    telemetry_config: Mapping[str, Any] | None, environment: MutableMapping[str, str] | None = None
) -> str | None:
    """Put the `telemetry:` block into the environment that servers inherit; what is set there already stays.

    Returns the id of the run: the block's `run_id`, else the Slurm job's, else a random one; None when the block
    doesn't enable telemetry.
    """
    variables = os.environ if environment is None else environment
    block = TelemetryConfig.of(telemetry_config)
    if not block.enabled:
        return None
    run_id = block.run_id or variables.get("SLURM_JOB_ID") or os.urandom(6).hex()
    for name, value in block.variables(run_id).items():
        variables.setdefault(name, value)
    return run_id


@dataclass(frozen=True)
class TelemetryConfig:
    """The block `telemetry:` of a config; keys it doesn't know are left to others."""

    enabled: bool = False
    service_name: str = DEFAULT_SERVICE_NAME
    service_name_per_server: bool = True
    span_groups: str = "default"
    traces_enabled: bool = True
    metrics_enabled: bool = True
    logs_enabled: bool = False
    memory_profiling: Mapping[str, Any] = field(default_factory=dict)
    exporter: str = "otlp"
    otlp_endpoint: str | None = None
    otlp_protocol: str | None = None
    otlp_headers: str | Mapping[str, str] | None = None
    instrument_aiohttp: bool = True
    run_id: str | None = None

    @classmethod
    def of(cls, block: Mapping[str, Any] | None) -> TelemetryConfig:
        """Read a block; None is one that enables nothing."""
        known = {name: value for name, value in (block or {}).items() if name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in known.items() if value is not None})

    def variables(self, run_id: str) -> dict[str, str]:
        """The block as environment variables."""
        groups = self.span_groups if isinstance(self.span_groups, str) else ",".join(self.span_groups)
        own = {
            "ENABLED": "true",
            "SPAN_GROUPS": groups,
            "EXPORTER": self.exporter,
            "RUN_ID": str(run_id),
            "MEMORY_PROFILING_ENABLED": _switch(self.memory_profiling.get("enabled", False)),
            "MEMORY_PROFILING_INTERVAL_SECONDS": str(self.memory_profiling.get("interval_seconds", 1.0)),
            **{name.upper(): _switch(getattr(self, name)) for name in _SWITCHES},
        }
        otlp = {"ENDPOINT": self.otlp_endpoint, "PROTOCOL": self.otlp_protocol, "HEADERS": _pairs(self.otlp_headers)}
        return {
            **{f"{PREFIX}{name}": value for name, value in own.items()},
            SERVICE_NAME_ENV: self.service_name,
            **{f"{OTLP_PREFIX}{name}": value for name, value in otlp.items() if value},
        }


@dataclass(frozen=True)
class TelemetrySettings:
    """What the environment of a process asks for."""

    enabled: bool = False
    service_name: str = DEFAULT_SERVICE_NAME
    service_name_per_server: bool = True
    span_groups: frozenset[str] = frozenset()
    traces_enabled: bool = True
    metrics_enabled: bool = True
    logs_enabled: bool = False
    exporter: str = "otlp"
    otlp_protocol: str = "http/protobuf"
    run_id: str | None = None
    memory_profiling_enabled: bool = False
    memory_profiling_interval_seconds: float = 1.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> TelemetrySettings:
        """Read the variables; those named for 0.7's tracing package count where ours are unset."""
        variables = os.environ if environment is None else environment

        def text(name: str, default: str) -> str:
            return variables.get(PREFIX + name) or variables.get(FALLBACK_PREFIX + name) or default

        def switch(name: str, default: bool) -> bool:
            return text(name, str(default)).strip().lower() in _TRUE

        return cls(
            enabled=switch("ENABLED", False),
            service_name=variables.get(SERVICE_NAME_ENV) or DEFAULT_SERVICE_NAME,
            service_name_per_server=switch("SERVICE_NAME_PER_SERVER", True),
            span_groups=parse_span_groups(text("SPAN_GROUPS", "default")),
            traces_enabled=switch("TRACES_ENABLED", True),
            metrics_enabled=switch("METRICS_ENABLED", True),
            logs_enabled=switch("LOGS_ENABLED", False),
            exporter=text("EXPORTER", "otlp").strip().lower(),
            otlp_protocol=variables.get(f"{OTLP_PREFIX}PROTOCOL") or "http/protobuf",
            run_id=text("RUN_ID", "") or None,
            memory_profiling_enabled=switch("MEMORY_PROFILING_ENABLED", False),
            memory_profiling_interval_seconds=float(text("MEMORY_PROFILING_INTERVAL_SECONDS", "1.0")),
        )


def parse_span_groups(text: str) -> frozenset[str]:
    """The groups of a comma-separated list of groups and presets. Raises ValueError naming what is neither."""
    groups: set[str] = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name in SPAN_GROUP_PRESETS:
            groups |= SPAN_GROUP_PRESETS[name]
        elif name in SPAN_GROUPS:
            groups.add(name)
        else:
            known = ", ".join(sorted({*SPAN_GROUPS, *SPAN_GROUP_PRESETS}))
            raise ValueError(f"{name!r} is no span group: choose from {known}")
    return frozenset(groups)


def _switch(value: Any) -> str:
    return "true" if value else "false"


def _pairs(headers: str | Mapping[str, str] | None) -> str | None:
    if isinstance(headers, Mapping):
        return ",".join(f"{name}={value}" for name, value in headers.items())
    return headers
