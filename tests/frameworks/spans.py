"""Every way to ask a client, and what a tracing tool and the engine say of it."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import openai

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.row import Row
from localai_shim.sdk.private import httpx
from tests.conftest import MESSAGES
from tests.frameworks.instruments import Instrument, usage
from tests.otel import Telemetry

Ask = tuple[str, bool]
"""(API, whether the answer is streamed)."""
ASKS: list[Ask] = [(api, stream) for api in ("chat", "responses") for stream in (False, True)]
CHAT: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES, "temperature": 0, "max_tokens": 12}
RESPONSES: dict[str, Any] = {"model": "gpt-4o", "input": "Hello there", "temperature": 0, "max_output_tokens": 12}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def ask(client: LocalOpenAI, ask: Ask) -> tuple[int, int]:
    """Ask, read the whole answer, and return (input tokens, output tokens) as it says."""
    api, stream = ask
    made: Any
    if api == "chat":
        made = client.chat.completions.create(**CHAT, **(STREAM if stream else {}))
        made = list(made)[-1] if stream else made
        return made.usage.prompt_tokens, made.usage.completion_tokens
    made = client.responses.create(**RESPONSES, stream=stream)
    made = list(made)[-1].response if stream else made
    return made.usage.input_tokens, made.usage.output_tokens


async def ask_async(client: AsyncLocalOpenAI, ask: Ask) -> tuple[int, int]:
    """As `ask`."""
    api, stream = ask
    made: Any
    if api == "chat":
        made = await client.chat.completions.create(**CHAT, **(STREAM if stream else {}))
        made = [chunk async for chunk in made][-1] if stream else made
        return made.usage.prompt_tokens, made.usage.completion_tokens
    made = await client.responses.create(**RESPONSES, stream=stream)
    made = [event async for event in made][-1].response if stream else made
    return made.usage.input_tokens, made.usage.output_tokens


def check(telemetry: Telemetry, answer: tuple[int, int], *, sees: bool, says: bool) -> None:
    """One span of the engine, and one of the tool's above it, if that sees this API, with the answer's usage, if it
    says that.
    """
    [engine] = telemetry.engine_spans
    others = [span for span in telemetry.spans if span is not engine]
    told = [span for span in others if usage(span) is not None]
    assert engine.attributes is not None
    assert (engine.attributes["localai_shim.input_tokens"], engine.attributes["localai_shim.output_tokens"]) == answer
    if not sees:
        assert not others and usage(engine) == answer and engine.parent is None
        return
    assert [usage(span) for span in told] == [answer] * says
    assert usage(engine) is None  # counted once
    assert [other for other in others if engine.parent and other.context.span_id == engine.parent.span_id]


def check_tool(
    telemetry: Telemetry, instrument: Instrument, client: LocalOpenAI, sees: set[Ask], says: set[Ask]
) -> None:
    """One way after the other, with one tool.

    Args:
        sees: what the tool makes a span of.
        says: what it knows the usage of.
    """
    with instrument(telemetry, client):
        for way in ASKS:
            check(telemetry, ask(client, way), sees=way in sees, says=way in says)
            telemetry.exporter.clear()
        check_metrics(telemetry)


async def check_tool_async(
    telemetry: Telemetry, instrument: Instrument, client: AsyncLocalOpenAI, sees: set[Ask], says: set[Ask]
) -> None:
    """As `check_tool`."""
    with instrument(telemetry, client):
        for way in ASKS:
            check(telemetry, await ask_async(client, way), sees=way in sees, says=way in says)
            telemetry.exporter.clear()
        check_metrics(telemetry)


def check_metrics(telemetry: Telemetry) -> None:
    """Each way to ask was measured once, and the gauges are there."""
    metrics = telemetry.metrics()
    assert sum(point.count for point in metrics["gen_ai.server.request.duration"]) == len(ASKS)
    assert {point.attributes["localai_shim.row.state"] for point in metrics["localai_shim.rows"]} == {
        "running",
        "waiting",
    }


# -- what streams leave in memory -----------------------------------------------------------------------------------

STREAMS = 200
IN_THREADS = 2
"""Most of each that threads may still hold of the last request."""


def in_memory() -> Counter[str]:
    """Number of stream classes, responses and rows."""
    gc.collect()
    found = Counter[str]()
    for each in gc.get_objects():
        kind = type(each)
        if issubclass(kind, type):
            found["stream classes"] += issubclass(each, openai.Stream | openai.AsyncStream)
        found["responses"] += issubclass(kind, httpx.Response)
        found["rows"] += issubclass(kind, Row)
    return found


def check_nothing_left(before: Counter[str]) -> None:
    """Streams have left nothing in memory since `before`."""
    after = in_memory()
    assert all(after[name] <= before[name] + IN_THREADS for name in after), (before, after)


def _body(i: int) -> tuple[str, dict[str, Any]]:
    return ("chat", {**CHAT, "max_tokens": 2}) if i % 2 else ("responses", {**RESPONSES, "max_output_tokens": 2})


def stream_often(client: Any, times: int = STREAMS) -> None:
    """Stream with both APIs; half of the streams are closed after their first event."""
    for i in range(times):
        api, body = _body(i)
        with (client.chat.completions if api == "chat" else client.responses).create(**body, stream=True) as stream:
            next(iter(stream))
            if i % 4 < 2:
                list(stream)


async def stream_often_async(client: Any, times: int = STREAMS) -> None:
    """As `stream_often`."""
    for i in range(times):
        api, body = _body(i)
        stream = await (client.chat.completions if api == "chat" else client.responses).create(**body, stream=True)
        async with stream:
            await anext(aiter(stream))
            if i % 4 < 2:
                [_ async for _ in stream]
