"""OpenTelemetry's SDK as a program's own, as long as a test takes, with everything kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

sdk = pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry import context, metrics, trace  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.util._once import Once  # noqa: E402

__all__ = [
    "InMemoryMetricReader",
    "ReadableSpan",
    "SpanProcessor",
    "Telemetry",
    "context",
    "global_telemetry",
    "metrics",
    "no_telemetry",
    "trace",
]


class Telemetry:
    """What was told to OpenTelemetry."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self.reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.tracers.get_tracer("a test's")

    @property
    def engine_spans(self) -> list[ReadableSpan]:
        """Ours, in the order of their ends."""
        return [span for span in self.spans if span.instrumentation_scope.name == "localai_shim"]

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def one(self) -> tuple[ReadableSpan, dict[str, Any]]:
        """The only span of ours, and its attributes; forgets it."""
        [span] = self.engine_spans
        self.exporter.clear()
        return span, dict(span.attributes or {})

    def metrics(self) -> dict[str, list[Any]]:
        """The data points of each of our metrics, by its name."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {
            metric.name: list(metric.data.data_points)
            for scope in scopes
            if scope.scope.name == "localai_shim"
            for metric in scope.metrics
        }


@contextmanager
def no_telemetry() -> Iterator[None]:
    """Nobody has set up an SDK; whoever does so has done it until the end. The API lets nobody do so twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)
        patch.setattr("opentelemetry.trace._TRACER_PROVIDER_SET_ONCE", Once())
        patch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", None)
        patch.setattr("opentelemetry.metrics._internal._METER_PROVIDER_SET_ONCE", Once())
        yield


@contextmanager
def global_telemetry() -> Iterator[Telemetry]:
    """New providers are those of the program."""
    made = Telemetry()
    with no_telemetry():
        trace.set_tracer_provider(made.tracers)
        metrics.set_meter_provider(made.meters)
        yield made
    made.tracers.shutdown()
    made.meters.shutdown()
