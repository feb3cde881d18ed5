"""Tracing tools that make a span of each call of a client, as long as a test takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.otel import InMemoryMetricReader, ReadableSpan, Telemetry, metrics, no_telemetry, trace

Instrument = Callable[[Telemetry, Any], contextlib.AbstractContextManager[None]]
"""(where spans go, a client) -> the tool is on."""


@contextlib.contextmanager
def logfire(telemetry: Telemetry, client: Any) -> Iterator[None]:
    """Logfire sets the program's providers itself: proxies that cannot be hashed."""
    logfire = pytest.importorskip("logfire")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    telemetry.reader = InMemoryMetricReader()
    with no_telemetry():
        logfire.configure(
            send_to_logfire=False,
            console=False,
            metrics=logfire.MetricsOptions(additional_readers=[telemetry.reader]),
            inspect_arguments=False,
            additional_span_processors=[SimpleSpanProcessor(telemetry.exporter)],
        )
        config = logfire.DEFAULT_LOGFIRE_INSTANCE.config  # which sets them once in a process only
        trace.set_tracer_provider(config.get_tracer_provider())
        metrics.set_meter_provider(config.get_meter_provider())
        with logfire.instrument_openai(client):
            yield
        logfire.shutdown(flush=False)


def instrumentor(module: str) -> Instrument:
    """A tool that replaces methods of the SDK's classes."""

    @contextlib.contextmanager
    def instrument(telemetry: Telemetry, client: Any) -> Iterator[None]:
        tool = pytest.importorskip(module).OpenAIInstrumentor()
        tool.instrument(tracer_provider=telemetry.tracers, meter_provider=telemetry.meters)
        try:
            yield
        finally:
            tool.uninstrument()

    return instrument


openai_v2 = instrumentor("opentelemetry.instrumentation.openai_v2")
genai_openai = instrumentor("opentelemetry.instrumentation.genai.openai")
openinference = instrumentor("openinference.instrumentation.openai")

INPUT_TOKENS = ("gen_ai.usage.input_tokens", "llm.token_count.prompt")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "llm.token_count.completion")


def usage(span: ReadableSpan) -> tuple[int, int] | None:
    """(input tokens, output tokens) by whatever names the tool has for them; None: it does not say."""
    attributes: dict[str, Any] = dict(span.attributes or {})
    found = [
        next((attributes[name] for name in names if name in attributes), None)
        for names in (INPUT_TOKENS, OUTPUT_TOKENS)
    ]
    return None if None in found else (found[0], found[1])  # type: ignore[return-value]
