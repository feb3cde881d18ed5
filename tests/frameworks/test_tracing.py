"""Tracing tools around our clients: the spans are filled, and the answers are what they were."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedOpenAI, hang
from tests.conftest import MESSAGES
from tests.otel import no_telemetry

trace_export = pytest.importorskip("opentelemetry.sdk.trace.export")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

CREATE: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES, "temperature": 0, "max_tokens": 12}
STREAM: dict[str, Any] = {**CREATE, "stream": True, "stream_options": {"include_usage": True}}

Spans = Any
"""An exporter that keeps its spans in memory."""


@pytest.fixture(scope="module")
def expected(client: LocalOpenAI) -> str:
    """The text of the answer that every test here asks for."""
    return str(client.chat.completions.create(**CREATE).choices[0].message.content)


@pytest.fixture
def logfire_spans() -> Iterator[Spans]:
    """Logfire sends its spans to memory only."""
    logfire = pytest.importorskip("logfire")
    exporter = in_memory.InMemorySpanExporter()
    with no_telemetry():
        logfire.configure(
            send_to_logfire=False,
            console=False,
            metrics=False,
            inspect_arguments=False,
            additional_span_processors=[trace_export.SimpleSpanProcessor(exporter)],
        )
        yield exporter
        logfire.shutdown(flush=False)


@pytest.fixture
def otel_spans() -> Iterator[Spans]:
    """OpenTelemetry's instrumentation of the SDK's classes, as long as a test takes."""
    # Its modules import httpx, which the SDK 3.x does not bring, and a helper package of changing layout.
    openai_v2 = pytest.importorskip("opentelemetry.instrumentation.openai_v2")
    from opentelemetry.sdk.trace import TracerProvider

    exporter = in_memory.InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(trace_export.SimpleSpanProcessor(exporter))
    instrumentor = openai_v2.OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()
    provider.shutdown()


def instrument(client: Any) -> Any:
    """Let Logfire see a client's requests, as long as the context lasts."""
    import logfire

    return logfire.instrument_openai(client)


def one_span(spans: Spans, name: str) -> dict[str, Any]:
    """The attributes of the only span whose name begins so."""
    [span] = [span for span in spans.get_finished_spans() if span.name.startswith(name)]
    return dict(span.attributes)


def said(chunks: list[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def check_usage(attributes: dict[str, Any]) -> None:
    """The span says which model was asked for and what the answer took."""
    assert attributes["gen_ai.request.model"] == "gpt-4o"
    assert attributes["gen_ai.usage.output_tokens"] == 12
    assert attributes["gen_ai.usage.input_tokens"] > 12


def logged_text(attributes: dict[str, Any]) -> str:
    """The answer that Logfire wrote down."""
    [message] = json.loads(attributes["gen_ai.output.messages"])
    return "".join(part["content"] for part in message["parts"])


def test_logfire_sees_a_whole_answer(model_path: Path, logfire_spans: Spans, expected: str) -> None:
    with LocalOpenAI(model_path) as client, instrument(client):
        made = client.chat.completions.create(**CREATE)
    attributes = one_span(logfire_spans, "Chat Completion")
    check_usage(attributes)
    assert logged_text(attributes) == made.choices[0].message.content == expected
    assert (attributes["gen_ai.response.model"], attributes["gen_ai.response.id"]) == ("tiny-qwen3", made.id)


def test_logfire_sees_a_stream(model_path: Path, logfire_spans: Spans, expected: str) -> None:
    with LocalOpenAI(model_path) as client, instrument(client):
        stream = client.chat.completions.create(**STREAM)
        assert isinstance(stream, openai.Stream)
        assert said(list(stream)) == expected
    attributes = one_span(logfire_spans, "streaming response")
    check_usage(attributes)
    assert logged_text(attributes) == expected


def test_logfire_sees_a_completion(model_path: Path, logfire_spans: Spans) -> None:
    with LocalOpenAI(model_path) as client, instrument(client):
        made = client.completions.create(model="gpt-4o", prompt="Hello", temperature=0)
    attributes = one_span(logfire_spans, "Completion")
    assert logged_text(attributes) == made.choices[0].text
    assert attributes["gen_ai.response.model"] == made.model


def test_logfire_sees_an_error(model_path: Path, logfire_spans: Spans) -> None:
    with LocalOpenAI(model_path) as client, instrument(client), pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**CREATE, n=0)
    [span] = [span for span in logfire_spans.get_finished_spans() if span.instrumentation_scope.name != "localai_shim"]
    assert span.status.status_code.name == "ERROR"
    assert [event.attributes["exception.type"] for event in span.events] == ["openai.BadRequestError"]


@pytest.mark.anyio
async def test_logfire_sees_the_async_client(model_path: Path, logfire_spans: Spans, expected: str) -> None:
    async with AsyncLocalOpenAI(model_path) as client:
        with instrument(client):
            made = await client.chat.completions.create(**CREATE)
            check_usage(one_span(logfire_spans, "Chat Completion"))
            stream = await client.chat.completions.create(**STREAM)
            assert isinstance(stream, openai.AsyncStream)
            chunks = [chunk async for chunk in stream]
    assert said(chunks) == made.choices[0].message.content == expected
    attributes = one_span(logfire_spans, "streaming response")
    check_usage(attributes)
    assert logged_text(attributes) == expected


def test_opentelemetry_sees_a_whole_answer(client: LocalOpenAI, otel_spans: Spans, expected: str) -> None:
    made = client.chat.completions.create(**CREATE)
    assert made.choices[0].message.content == expected
    attributes = one_span(otel_spans, "chat gpt-4o")
    check_usage(attributes)
    assert (attributes["gen_ai.response.model"], attributes["gen_ai.response.id"]) == (made.model, made.id)
    assert attributes["gen_ai.response.finish_reasons"] == ("length",)


def test_opentelemetry_sees_a_stream(client: LocalOpenAI, otel_spans: Spans, expected: str) -> None:
    with client.chat.completions.create(**STREAM) as stream:
        chunks = list(stream)
    assert said(chunks) == expected
    attributes = one_span(otel_spans, "chat gpt-4o")
    check_usage(attributes)
    assert (attributes["gen_ai.response.model"], attributes["gen_ai.response.id"]) == (chunks[0].model, chunks[0].id)


def test_opentelemetry_sees_an_error(client: LocalOpenAI, otel_spans: Spans) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**CREATE, n=0)
    assert one_span(otel_spans, "chat gpt-4o")["error.type"] == "BadRequestError"


@pytest.mark.anyio
async def test_opentelemetry_sees_the_async_client(
    async_client: AsyncLocalOpenAI, otel_spans: Spans, expected: str
) -> None:
    made = await async_client.chat.completions.create(**CREATE)
    assert made.choices[0].message.content == expected
    check_usage(one_span(otel_spans, "chat gpt-4o"))
    otel_spans.clear()
    async with await async_client.chat.completions.create(**STREAM) as stream:
        chunks = [chunk async for chunk in stream]
    assert said(chunks) == expected
    check_usage(one_span(otel_spans, "chat gpt-4o"))


def test_a_stream_class_of_ones_own_is_honoured(client: LocalOpenAI, expected: str) -> None:
    """What tracing tools do: a subclass whose __stream__ goes through the SDK's."""
    seen: list[ChatCompletionChunk] = []

    class Watching(openai.Stream[ChatCompletionChunk]):
        def __stream__(self) -> Iterator[ChatCompletionChunk]:
            for chunk in super().__stream__():
                seen.append(chunk)
                yield chunk

    stream = client.post(
        "/chat/completions", cast_to=ChatCompletionChunk, body=STREAM, stream=True, stream_cls=Watching
    )
    assert isinstance(stream, Watching)
    chunks = list(stream)
    assert chunks == seen and said(chunks) == expected


class Counting(openai.Stream[ChatCompletionChunk]):
    """A stream class whose generator says when it ended."""

    ended: threading.Event

    def __stream__(self) -> Iterator[ChatCompletionChunk]:
        self.ended = threading.Event()
        try:
            yield from super().__stream__()
        finally:
            self.ended.set()


class AsyncCounting(openai.AsyncStream[ChatCompletionChunk]):
    """Async form of `Counting`."""

    ended = False

    async def __stream__(self) -> AsyncIterator[ChatCompletionChunk]:
        try:
            async for chunk in super().__stream__():
                yield chunk
        finally:
            self.ended = True


def posted(client: Any, stream_cls: Any, **more: Any) -> Any:
    """A stream of another class."""
    body = {**STREAM, **more}
    return client.post("/chat/completions", cast_to=ChatCompletionChunk, body=body, stream=True, stream_cls=stream_cls)


def test_closing_a_stream_ends_the_generator_of_a_foreign_class(client: LocalOpenAI) -> None:
    gc.disable()
    try:
        stream = posted(client, Counting)
        next(stream)
        stream.close()
        assert stream.ended.is_set() and list(stream) == []
        with posted(client, Counting) as unread:
            pass
        assert list(unread) == []
    finally:
        gc.enable()


@pytest.mark.anyio
async def test_closing_an_async_stream_ends_the_generator_of_a_foreign_class(async_client: AsyncLocalOpenAI) -> None:
    stream = await posted(async_client, AsyncCounting)
    await anext(stream)
    await stream.close()
    assert stream.ended and [chunk async for chunk in stream] == []


def test_closing_a_stream_of_a_foreign_class_that_another_thread_reads() -> None:
    """The reader gets the error of a closed stream, and the closer none."""
    with ScriptedOpenAI().script(hang().after("Hello there")) as client:
        stream = posted(client, Counting, stream_options=None)
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(list, stream)
            while not stream._iterator.gi_running:
                time.sleep(0.001)
            stream.close()
            with pytest.raises(openai.APIConnectionError):
                reading.result(30)
        assert stream.ended.is_set()
