"""Spans and metrics: free when off, and off unless configured."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nemo_gym.telemetry._fallbacks import (
    NEMO_LENS_AVAILABLE,
    is_span_group_enabled,
    managed_span,
    safe_set_span_attributes,
    span_cm,
    trace_fn,
)
from nemo_gym.telemetry.metrics import is_metrics_exporter_active, record
from nemo_gym.telemetry.settings import TelemetrySettings, configure_telemetry_env

if TYPE_CHECKING:
    from nemo_gym.telemetry.provider import Telemetry

__all__ = [
    "NEMO_LENS_AVAILABLE",
    "configure_telemetry_env",
    "get_telemetry",
    "init_telemetry",
    "instrument_app",
    "is_metrics_exporter_active",
    "is_span_group_enabled",
    "managed_span",
    "record",
    "safe_set_span_attributes",
    "server_venv_requirements",
    "shutdown_telemetry",
    "span_cm",
    "trace_fn",
]

_logger = logging.getLogger(__name__)
_telemetry: Telemetry | None = None


def init_telemetry(
    server_name: str,
    server_type: str,
    resource_attributes: Mapping[str, Any] | None = None,
    *,
    rollout_id: Callable[[], str | None] = lambda: None,
    redact: Callable[[str], str] | None = None,
) -> None:
    """Start exporting for this process if the environment asks for it. Idempotent, never raises.

    `rollout_id` tells which rollout the running code works for, `redact` masks secrets in exported logs.
    """
    global _telemetry
    try:
        settings = TelemetrySettings.from_environment()
        if not settings.enabled or get_telemetry() is not None:
            return
        from nemo_gym.telemetry.provider import Telemetry

        _telemetry = Telemetry.start(
            settings,
            server_name,
            server_type,
            resource_attributes=resource_attributes,
            rollout_id=rollout_id,
            redact=redact,
        )
        atexit.register(shutdown_telemetry)
    except Exception as error:
        _logger.warning("Telemetry stays off: %s", error)


def get_telemetry() -> Telemetry | None:
    """What this process exports with, None when it exports nothing."""
    return _telemetry if _telemetry is not None and _telemetry.pid == os.getpid() else None


def shutdown_telemetry(timeout_ms: int = 5000) -> None:
    """Flush what was recorded, for at most this long. Never raises."""
    global _telemetry
    telemetry, _telemetry = get_telemetry(), None
    if telemetry is None:
        return
    try:
        telemetry.shutdown(timeout_ms)
    except Exception:
        _logger.warning("Telemetry could not be ended in order", exc_info=True)
    atexit.unregister(shutdown_telemetry)


def instrument_app(app: Any, server_name: str) -> None:
    """Record a span per request of a Starlette app, if spans of the group `server` are exported."""
    telemetry = get_telemetry()
    if telemetry is None or telemetry.spans is None or not is_span_group_enabled("server"):
        return
    from nemo_gym.telemetry.asgi import ServerSpanMiddleware

    app.add_middleware(ServerSpanMiddleware, spans=telemetry.spans, server_name=server_name)


def server_venv_requirements() -> list[str]:
    """What a server's own venv needs for telemetry: nothing beyond the base when it exports nothing or to stderr."""
    from importlib import metadata

    settings = TelemetrySettings.from_environment()
    if not settings.enabled or settings.exporter != "otlp":
        return []
    kind = "grpc" if settings.otlp_protocol == "grpc" else "http"
    name = f"opentelemetry-exporter-otlp-proto-{kind}"
    try:
        return [f"{name}=={metadata.version(name)}"]
    except metadata.PackageNotFoundError:
        return [name]
