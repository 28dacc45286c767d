"""The telemetry of one process: its providers, made from its settings or taken over from the program it runs in."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.package_info import __version__
from nemo_gym.telemetry import _fallbacks, exporters
from nemo_gym.telemetry.metrics import CallMeasure, install_meter
from nemo_gym.telemetry.settings import TelemetrySettings
from nemo_gym.telemetry.spans import OpenTelemetrySpans

_SCOPE = "nemo_gym"


@dataclass(eq=False)
class Telemetry:
    """What this process exports with; `spans` and `meter` are None where that signal is off."""

    settings: TelemetrySettings
    server_name: str
    spans: OpenTelemetrySpans | None = None
    meter: Any = None
    pid: int = field(default_factory=os.getpid)
    _owned: list[Any] = field(default_factory=list)
    _log_handler: logging.Handler | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._ending = threading.Thread(target=self._end, name="nemo-gym-telemetry-shutdown", daemon=True)

    @classmethod
    def start(
        cls,
        settings: TelemetrySettings,
        server_name: str,
        server_type: str,
        *,
        resource_attributes: Mapping[str, Any] | None = None,
        rollout_id: Callable[[], str | None] = lambda: None,
        redact: Callable[[str], str] | None = None,
    ) -> Telemetry:
        """Start what the settings ask for. Raises TelemetryError for an exporter that isn't there."""
        telemetry = cls(settings, server_name)
        resource = _resource(settings, server_name, server_type, resource_attributes or {})
        if settings.traces_enabled:
            tracer = telemetry._tracer_provider(resource).get_tracer(_SCOPE, __version__)
            telemetry.spans = OpenTelemetrySpans(tracer, server_name, rollout_id)
        if settings.metrics_enabled:
            telemetry.meter = telemetry._meter_provider(resource).get_meter(_SCOPE, __version__)
        if settings.logs_enabled:
            telemetry._export_logs(resource, redact)
        measure = CallMeasure(server_name) if telemetry.meter is not None else None
        _fallbacks.install(telemetry.spans, settings.span_groups, measure)
        install_meter(telemetry.meter)
        telemetry._ending.start()
        return telemetry

    def shutdown(self, timeout_ms: int) -> None:
        """Flush and end what was started here, within the time; what a host program set up is its own."""
        _fallbacks.install(None)
        install_meter(None)
        if self._log_handler is not None:
            logging.getLogger().removeHandler(self._log_handler)
        self._is_over.set()
        self._ending.join(timeout_ms / 1000)

    def _end(self) -> None:
        """In a thread that waits for it from the start: an interpreter that ends, from Python 3.12 on, starts none."""
        self._is_over.wait()
        for provider in self._owned:
            try:
                provider.force_flush()
                provider.shutdown()
            except Exception:
                logging.getLogger(__name__).warning("Telemetry could not be flushed", exc_info=True)

    def _tracer_provider(self, resource: Any) -> Any:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        host = trace.get_tracer_provider()
        if isinstance(host, TracerProvider):
            return host
        exporter = exporters.span_exporter(self.settings)
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        self._owned.append(provider)
        return provider

    def _meter_provider(self, resource: Any) -> Any:
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        host = metrics.get_meter_provider()
        if isinstance(host, MeterProvider):
            return host
        reader = PeriodicExportingMetricReader(exporters.metric_exporter(self.settings))
        provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        metrics.set_meter_provider(provider)
        self._owned.append(provider)
        return provider

    def _export_logs(self, resource: Any, redact: Callable[[str], str] | None) -> None:
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        from nemo_gym.telemetry.logs import RedactedLogHandler

        provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_log_record_processor(BatchLogRecordProcessor(exporters.log_exporter(self.settings)))
        self._owned.append(provider)
        self._log_handler = RedactedLogHandler(provider, redact)
        logging.getLogger().addHandler(self._log_handler)


def _resource(settings: TelemetrySettings, server_name: str, server_type: str, attributes: Mapping[str, Any]) -> Any:
    from opentelemetry.sdk.resources import Resource

    per_server = settings.service_name_per_server and server_name
    known: dict[str, Any] = {
        "service.name": f"{settings.service_name}/{server_name}" if per_server else settings.service_name,
        "nemo.gym.version": __version__,
        "nemo.gym.server.name": server_name,
        "nemo.gym.server.type": server_type,
        "nemo.gym.service_group": settings.service_name,
        "nemo.gym.run.id": settings.run_id or "",
        "rank": 0,
        "world_size": 1,
    }
    return Resource.create({**known, **attributes})
