"""A host program that exports to memory, for one test at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_gym import telemetry


@dataclass
class Exported:
    """What left the process."""

    spans: InMemorySpanExporter
    reader: InMemoryMetricReader

    def span(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans.get_finished_spans() if span.name == name]
        return span

    def names(self) -> list[str]:
        return [span.name for span in self.spans.get_finished_spans()]

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data: Any = self.reader.get_metrics_data()
        if data is None:
            return []
        found = [
            metric for source in data.resource_metrics for scope in source.scope_metrics for metric in scope.metrics
        ]
        return [point for metric in found if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    """The exporters of a program that Gym runs in."""
    found = Exported(InMemorySpanExporter(), InMemoryMetricReader())
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(found.spans))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", MeterProvider([found.reader], shutdown_on_exit=False))
    assert metrics.get_meter_provider() is metrics_internal._METER_PROVIDER
    yield found
    telemetry.shutdown_telemetry()


@pytest.fixture
def start(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Starts telemetry with variables named without their prefix."""

    def begin(*, rollout_id: Callable[[], str | None] = lambda: None, **variables: str) -> None:
        for name, value in {"ENABLED": "1", **variables}.items():
            monkeypatch.setenv(f"NEMO_GYM_OTEL_{name}", value)
        telemetry.init_telemetry("toy", "resources_servers", rollout_id=rollout_id)

    return begin
