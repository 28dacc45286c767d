"""Where spans, metrics and logs are sent: an OTLP collector, or this process's stderr."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.telemetry.settings import TelemetrySettings

_OTLP = "opentelemetry.exporter.otlp.proto"
_PACKAGE_OF_PROTOCOL = {"http/protobuf": "http", "http": "http", "grpc": "grpc"}
_MODULE_AND_CLASS = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}


class TelemetryError(GymError):
    """Telemetry is configured in a way that cannot work."""


def span_exporter(settings: TelemetrySettings) -> Any:
    """The exporter of spans. Raises TelemetryError, as do the others, for one that isn't there."""
    if _is_console(settings):
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    return _otlp(settings, "traces")


def metric_exporter(settings: TelemetrySettings) -> Any:
    """The exporter of metrics."""
    if _is_console(settings):
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        return ConsoleMetricExporter(out=sys.stderr)
    return _otlp(settings, "metrics")


def log_exporter(settings: TelemetrySettings) -> Any:
    """The exporter of log records."""
    if _is_console(settings):
        from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter

        return ConsoleLogRecordExporter(out=sys.stderr)
    return _otlp(settings, "logs")


def _is_console(settings: TelemetrySettings) -> bool:
    if settings.exporter not in {"console", "otlp"}:
        raise TelemetryError(f"telemetry.exporter is {settings.exporter!r}: it must be otlp or console.")
    return settings.exporter == "console"


def _otlp(settings: TelemetrySettings, signal: str) -> Any:
    package = _PACKAGE_OF_PROTOCOL.get(settings.otlp_protocol)
    if package is None:
        raise TelemetryError(
            f"telemetry.otlp_protocol is {settings.otlp_protocol!r}: it must be http/protobuf or grpc."
        )
    module, name = _MODULE_AND_CLASS[signal]
    try:
        return getattr(importlib.import_module(f"{_OTLP}.{package}.{module}"), name)()
    except ImportError:
        distribution = f"opentelemetry-exporter-otlp-proto-{package}"
        extra = "the extra `telemetry` (`nemo-gym[telemetry]`)" if package == "http" else f"`{distribution}`"
        raise TelemetryError(f"telemetry.exporter otlp needs {extra} to be installed.") from None
