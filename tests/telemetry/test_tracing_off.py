"""Tracing is on once the program has set up an SDK, and costs nothing where it has not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from tests.conftest import MESSAGES
from tests.otel import Telemetry, context, global_telemetry, no_telemetry
from tests.scripts import run

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES, "max_tokens": 5, "temperature": 0}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    with global_telemetry() as made:
        yield made


def test_nothing_is_observed_where_nobody_has_set_up_an_sdk(
    client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localai_shim.telemetry.observe.Observation", None)
    with no_telemetry():
        assert client.chat.completions.create(**ASK).choices


def test_instrumentation_that_is_suppressed(client: LocalOpenAI, telemetry: Telemetry) -> None:
    token = context.attach(context.set_value("suppress_instrumentation", True))
    try:
        client.chat.completions.create(**ASK)
    finally:
        context.detach(token)
    assert not telemetry.spans and not telemetry.metrics()


SCRIPT = """
import sys
from localai_shim.testing import scripted
def ask():
    with scripted("Hello!") as client:
        client.responses.create(model="any", input="Hi")
ask()
assert not any(name.startswith("opentelemetry") for name in sys.modules)
from opentelemetry import trace
ask()
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
ask()
print([span.name for span in spans.get_finished_spans()])
"""


def test_tracing_is_on_once_the_program_has_an_sdk_and_can_be_turned_off() -> None:
    """A program that does not use OpenTelemetry never imports it."""
    done = run(SCRIPT, warm="sdk")
    assert (done.returncode, done.stdout) == (0, "['engine scripted']\n"), done.stderr
    done = run(SCRIPT, warm="sdk", OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="redis, localai_shim")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
