"""Each request makes one span below the caller's own, and a server's metrics, where the program has set up an SDK."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client, rerank
from localai_shim.testing import reasoning, scripted, tool_call
from tests.conftest import MESSAGES
from tests.embedding_models import tiny_classifier, tiny_embedder
from tests.engine.harness import eventually
from tests.lora import make_adapter
from tests.otel import (
    ReadableSpan,
    SpanProcessor,
    Telemetry,
    global_telemetry,
    trace,
)
from tests.scripts import run
from tests.tiny import tiny

ASK: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": MESSAGES,
    "max_tokens": 5,
    "temperature": 0,
    "extra_body": {"ignore_eos": True},
}
ENDLESS = {**ASK, "max_tokens": 10_000, "stream": True}
EVENTS = [
    f"localai_shim.{name}" for name in ("queued", "prefill_started", "prefill_finished", "first_token", "finished")
]


def path() -> str:
    return str(tiny("qwen3", max_position_embeddings=200_000))


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(path()) as client:
        client.chat.completions.create(**ASK)
        yield client


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    with global_telemetry() as made:
        yield made


# -- what a span says ------------------------------------------------------------------------------------------------


def test_a_span_has_the_request_its_usage_and_what_the_engine_knows(client: LocalOpenAI, telemetry: Telemetry) -> None:
    made = client.chat.completions.create(**ASK)
    span, attributes = telemetry.one()
    assert (span.name, span.kind, span.status.status_code.name) == (
        "engine tiny-qwen3",
        trace.SpanKind.INTERNAL,
        "UNSET",
    )
    assert made.usage is not None and made.usage.prompt_tokens_details is not None
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mlx",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0,
        "gen_ai.response.model": made.model,
        "gen_ai.response.id": made.id,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": made.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": made.usage.prompt_tokens_details.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "localai_shim.input_tokens": made.usage.prompt_tokens,
        "localai_shim.cached_tokens": made.usage.prompt_tokens_details.cached_tokens,
        "localai_shim.output_tokens": 5,
        "localai_shim.media_tokens": 0,
        "localai_shim.batch_rows": 1.0,
    }
    assert expected.items() <= attributes.items()
    seconds = ("time_to_first_token", "time_per_output_token", "queue_time", "prefill_time")
    assert all(0 < attributes[f"localai_shim.{name}"] < 60 for name in seconds)
    assert [event.name for event in span.events] == EVENTS
    times = [span.start_time, *(event.timestamp for event in span.events), span.end_time]
    assert times == sorted(times) and times[-1] - times[0] < 60e9


def test_a_span_names_the_adapter_of_its_request_alone(telemetry: Telemetry, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "sql", tiny("qwen3"))
    with LocalOpenAI(tiny("qwen3"), adapters={"sql": adapter}, keep_alive=0) as client:
        asked: list[dict[str, Any]] = [{"model": "sql"}, {"model": "gpt-4o", "extra_body": {"adapter": "sql"}}, {}]
        for each in asked:
            client.chat.completions.create(**{**ASK, **each})
        client.embeddings.create(model="sql", input="one")
    named = [dict(span.attributes or {}).get("localai_shim.adapter") for span in telemetry.engine_spans]
    assert named == ["sql", "sql", None, "sql"]


def test_choices_are_rows_of_one_span(client: LocalOpenAI, telemetry: Telemetry) -> None:
    made = client.chat.completions.create(**ASK, n=3)
    _, attributes = telemetry.one()
    assert made.usage is not None and attributes["gen_ai.usage.input_tokens"] == made.usage.prompt_tokens
    assert (attributes["gen_ai.usage.output_tokens"], attributes["gen_ai.request.choice.count"]) == (15, 3)
    assert (
        attributes["localai_shim.batch_rows"] == 3 and attributes["gen_ai.response.finish_reasons"] == ("length",) * 3
    )


ASKED: list[tuple[dict[str, Any], dict[str, object]]] = [
    (
        {"seed": 7, "top_p": 0.5, "stop": "zzz"},
        {"request.seed": 7, "request.top_p": 0.5, "request.stop_sequences": ("zzz",)},
    ),
    ({"stop": ["yyy", "zzz"]}, {"request.stop_sequences": ("yyy", "zzz")}),
    (
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"request.presence_penalty": 1.0, "request.frequency_penalty": 0.5},
    ),
    ({"extra_body": {"top_k": 3}}, {"request.top_k": 3}),
    ({"response_format": {"type": "json_object"}}, {"output.type": "json"}),
    ({"response_format": {"type": "text"}}, {"output.type": "text"}),
]


@pytest.mark.parametrize(("asked", "said"), ASKED, ids=lambda value: "-".join(value))
def test_a_span_has_what_was_asked_for(telemetry: Telemetry, asked: dict[str, Any], said: dict[str, object]) -> None:
    with scripted("{}") as client:
        client.chat.completions.create(model="any", messages=MESSAGES, **asked)
    assert {f"gen_ai.{name}": value for name, value in said.items()}.items() <= telemetry.one()[1].items()


@pytest.mark.parametrize("stream", [False, True])
def test_a_span_has_the_tokens_of_reasoning_the_conversation_and_how_the_answer_ended(
    telemetry: Telemetry, stream: bool
) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    with scripted([reasoning("one two three"), tool_call("look")]) as client:
        talk = client.conversations.create()
        made: Any = client.responses.create(model="any", input="Hi", tools=[tool], conversation=talk.id, stream=stream)
        usage = (list(made)[-1].response if stream else made).usage
    _, attributes = telemetry.one()
    assert attributes["gen_ai.usage.reasoning.output_tokens"] == usage.output_tokens_details.reasoning_tokens > 0
    assert attributes["gen_ai.conversation.id"] == talk.id
    assert attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)


@pytest.mark.parametrize("stream", [False, True])
def test_every_endpoint_that_runs_a_model(client: LocalOpenAI, telemetry: Telemetry, stream: bool) -> None:
    made: Any = client.completions.create(model="gpt-4o", prompt=["Hello", "there"], max_tokens=3, stream=stream)
    list(made)
    assert telemetry.one()[1]["gen_ai.operation.name"] == "text_completion"
    made = client.responses.create(model="gpt-4o", input="Hello there", max_output_tokens=3, stream=stream)
    last = list(made)[-1].response if stream else made
    _, attributes = telemetry.one()
    assert (attributes["gen_ai.operation.name"], attributes["gen_ai.response.id"]) == ("chat", last.id)
    usage = (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"])
    assert usage == (last.usage.input_tokens, last.usage.output_tokens)
    assert attributes["gen_ai.request.max_tokens"] == 3


def test_embeddings_and_rerankings(telemetry: Telemetry) -> None:
    with LocalOpenAI(tiny_embedder()) as client:
        made = client.embeddings.create(model="gpt-4o", input=["one two", "three"])
    span, attributes = telemetry.one()
    assert (attributes["gen_ai.operation.name"], attributes["gen_ai.response.model"]) == ("embeddings", made.model)
    assert attributes["gen_ai.usage.input_tokens"] == made.usage.prompt_tokens
    assert "gen_ai.usage.output_tokens" not in attributes and attributes["localai_shim.queue_time"] >= 0
    assert [event.name for event in span.events] == [EVENTS[0], EVENTS[1], EVENTS[-1]]
    with LocalOpenAI(tiny_classifier()) as client:
        rerank(client, "one", ["one two", "three"])
    _, attributes = telemetry.one()
    assert attributes["gen_ai.operation.name"] == "rerank" and attributes["gen_ai.usage.input_tokens"] > 0


def test_what_runs_no_model_makes_none(client: LocalOpenAI, telemetry: Telemetry) -> None:
    client.models.list()
    client.responses.input_tokens.count(model="any", input="Hello")
    with pytest.raises(openai.NotFoundError):
        client.get("/nothing", cast_to=object)
    assert not telemetry.spans


# -- whose child it is -----------------------------------------------------------------------------------------------


def test_a_span_is_a_child_of_the_callers_on_every_thread(client: LocalOpenAI, telemetry: Telemetry) -> None:
    def work(i: int) -> None:
        with telemetry.tracer.start_as_current_span(f"caller {i}"):
            client.chat.completions.create(**{**ASK, "max_tokens": 2 + i})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    callers = {span.name: span for span in telemetry.spans if span not in telemetry.engine_spans}
    assert len(telemetry.engine_spans) == 6
    for span in telemetry.engine_spans:
        assert span.attributes is not None and span.parent is not None
        caller = callers[f"caller {span.attributes['gen_ai.usage.output_tokens'] - 2}"]
        assert (span.parent.span_id, span.context.trace_id) == (caller.context.span_id, caller.context.trace_id)
        assert caller.start_time <= span.start_time <= span.end_time <= caller.end_time


@pytest.mark.parametrize("runner", [asyncio.run, trio.run])
def test_a_span_is_a_child_of_the_callers_in_every_task(telemetry: Telemetry, runner: Any) -> None:
    import anyio

    async def main() -> None:
        async with AsyncLocalOpenAI(path()) as client, anyio.create_task_group() as group:
            for i in range(6):
                group.start_soon(work, client, i)

    async def work(client: AsyncLocalOpenAI, i: int) -> None:
        with telemetry.tracer.start_as_current_span(f"caller {i}"):
            stream = await client.chat.completions.create(**{**ASK, "max_tokens": 2 + i}, stream=bool(i % 2))
            if i % 2:
                async for _ in stream:
                    pass

    runner(main) if runner is trio.run else runner(main())
    callers = {span.context.span_id: span.name for span in telemetry.spans if span not in telemetry.engine_spans}
    found = {
        callers[span.parent.span_id]: span.attributes["gen_ai.usage.output_tokens"]  # type: ignore[union-attr,index]
        for span in telemetry.engine_spans
    }
    assert found == {f"caller {i}": 2 + i for i in range(6)}


def test_a_stream_is_a_child_of_who_asked_for_it_whoever_reads_it(client: LocalOpenAI, telemetry: Telemetry) -> None:
    with telemetry.tracer.start_as_current_span("asks") as asks:
        stream = client.chat.completions.create(**ASK, stream=True)
    with telemetry.tracer.start_as_current_span("reads"):
        reader = threading.Thread(target=list, args=(stream,))
        reader.start()
        reader.join()
    [span] = telemetry.engine_spans
    assert span.parent is not None and span.parent.span_id == asks.get_span_context().span_id
    assert span.attributes is not None and span.attributes["gen_ai.request.stream"] is True


def test_what_the_callers_span_says_is_not_said_twice(client: LocalOpenAI, telemetry: Telemetry) -> None:
    """Tools add up the tokens of all spans that have some."""
    inference = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
    for attributes, is_inference in (
        (inference, True),
        ({"openinference.span.kind": "LLM"}, True),
        ({**inference, "gen_ai.operation.name": "invoke_agent"}, False),
        ({"openinference.span.kind": "CHAIN"}, False),
        ({}, False),
    ):
        telemetry.exporter.clear()
        with telemetry.tracer.start_as_current_span("caller", attributes=attributes):
            client.chat.completions.create(**ASK)
        _, found = telemetry.one()
        assert ("gen_ai.usage.output_tokens" in found, "gen_ai.operation.name" in found) == (not is_inference,) * 2
        assert found["localai_shim.output_tokens"] == 5


@pytest.mark.parametrize("stream", [False, True])
def test_clients_around_our_http_client_have_them_too(telemetry: Telemetry, stream: bool) -> None:
    with (
        openai.OpenAI(api_key="unused", http_client=http_client(path())) as stock,
        telemetry.tracer.start_as_current_span("caller") as caller,
    ):
        made: Any = stock.chat.completions.create(**ASK, stream=stream)
        list(made)
    [span] = telemetry.engine_spans
    assert span.parent is not None and span.parent.span_id == caller.get_span_context().span_id
    assert span.attributes is not None and span.attributes["gen_ai.usage.output_tokens"] == 5


# -- ends ------------------------------------------------------------------------------------------------------------


def test_a_stream_may_be_collected_while_a_processor_holds_its_lock(client: LocalOpenAI, telemetry: Telemetry) -> None:
    """The garbage collector runs wherever it likes, and locks of OpenTelemetry's SDK cannot be taken twice."""
    lock, names = threading.Lock(), list[str]()

    class Locking(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            with lock:
                gc.collect()
                names.append(span.name)

    telemetry.tracers.add_span_processor(Locking())
    gc.collect()
    gc.disable()
    try:
        stream = client.chat.completions.create(**ENDLESS)
        stream.itself = stream
        del stream
        client.chat.completions.create(**ASK)
    finally:
        gc.enable()
    assert eventually(lambda: len(names) == 2)


def test_a_neighbour_that_fails_or_leaves_changes_nobody_elses_span(client: LocalOpenAI, telemetry: Telemetry) -> None:
    leaves = client.chat.completions.create(**ENDLESS)
    next(leaves)
    stays = client.chat.completions.create(**ASK, stream=True)
    next(stays)
    leaves.close()
    list(stays)
    first, second = telemetry.engine_spans
    assert (first.status.status_code.name, second.status.status_code.name) == ("ERROR", "UNSET")
    assert second.attributes is not None and second.attributes["localai_shim.output_tokens"] == 5
    assert second.attributes["localai_shim.batch_rows"] > 1


def test_an_exporter_that_fails_is_nobody_elses_matter(
    client: LocalOpenAI, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("opentelemetry.sdk.trace.SynchronousMultiSpanProcessor.on_end", fail)
    assert client.chat.completions.create(**ASK).choices
    assert "an observer of a request failed" in caplog.text


EXIT = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda s: s.name)))
import threading
from localai_shim import LocalOpenAI
client = LocalOpenAI(MODEL)
ask = dict(model="any", messages=[{"role": "user", "content": "Hi"}], stream=True, max_tokens=5000)
dropped = client.chat.completions.create(**ask)
held = client.chat.completions.create(**ask)
next(dropped), next(held)
del dropped
"""


def test_a_process_may_end_with_streams_open_and_dropped() -> None:
    done = run(EXIT, warm="mlx")
    assert done.returncode == 0 and "Exception ignored" not in done.stderr and "Traceback" not in done.stderr


# -- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_of_a_server(client: LocalOpenAI, telemetry: Telemetry) -> None:
    for _ in range(3):
        client.chat.completions.create(**ASK)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**ASK, n=0)
    found = telemetry.metrics()
    failed, served = sorted(found["gen_ai.server.request.duration"], key=lambda point: point.count)
    labels = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "mlx", "gen_ai.request.model": "gpt-4o"}
    assert (served.count, failed.count) == (3, 1)
    assert dict(served.attributes) == {**labels, "gen_ai.response.model": "tiny-qwen3"}
    assert dict(failed.attributes) == {**labels, "error.type": "BadRequestError"}
    assert served.explicit_bounds[:2] == (0.01, 0.02)
    names = ["gen_ai.server.time_to_first_token", "gen_ai.server.time_per_output_token"]
    for name in [*names, "localai_shim.queue.duration", "localai_shim.batch.rows"]:
        [point] = found[name]
        assert point.count == 3 and point.sum > 0
    for name in ("rows", "memory"):  # other tests' engines may still be there
        points = found[f"localai_shim.{name}"]
        found[name] = [point for point in points if point.attributes["gen_ai.response.model"] == "tiny-qwen3"]
    rows = {point.attributes["localai_shim.row.state"]: point.value for point in found["rows"]}
    assert rows == {"running": 0, "waiting": 0}
    held = {point.attributes["localai_shim.memory.use"]: point.value for point in found["memory"]}
    assert held["prefix_cache"] > 0 == held["media"]
    tokens = {point.attributes["localai_shim.token.type"]: point.value for point in found["localai_shim.tokens"]}
    assert tokens["output"] == 15 and tokens["input"] > tokens["cached"] > 0


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_page_names_what_there_is(client: LocalOpenAI, telemetry: Telemetry) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text(encoding="utf-8")
    client.chat.completions.create(**ASK)
    found = telemetry.metrics()
    span, attributes = telemetry.one()
    names = {*attributes, *found, *(event.name for event in span.events), "localai_shim.token.type"}
    names |= {f"localai_shim.{name}" for name in ("row.state", "memory.use", "adapter")}
    documented = set(re.findall(r"`(localai_shim\.[a-z_.]+|gen_ai\.server\.[a-z_.]+)`", page))
    assert documented == {name for name in names if name.startswith(("localai_shim.", "gen_ai.server."))}
