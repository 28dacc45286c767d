"""Spans and metrics: free when off, and off unless configured."""

from collections.abc import Mapping
from typing import Any

from nemo_gym.telemetry._fallbacks import (
    NEMO_LENS_AVAILABLE,
    is_span_group_enabled,
    managed_span,
    safe_set_span_attributes,
    span_cm,
    trace_fn,
)

__all__ = [
    "NEMO_LENS_AVAILABLE",
    "init_telemetry",
    "is_metrics_exporter_active",
    "is_span_group_enabled",
    "managed_span",
    "safe_set_span_attributes",
    "shutdown_telemetry",
    "span_cm",
    "trace_fn",
]


def init_telemetry(server_name: str, server_type: str, resource_attributes: Mapping[str, Any] | None = None) -> None:
    """Start exporting for this process if the environment asks for it. Idempotent, never raises."""


def shutdown_telemetry(timeout_ms: int = 5000) -> None:
    """Flush what was recorded. Never raises."""


def is_metrics_exporter_active() -> bool:
    """Whether metrics leave this process."""
    return False
