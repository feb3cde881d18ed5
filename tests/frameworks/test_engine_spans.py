"""Below the one span that a tracing tool makes of a call there is one of the engine's, and tokens are counted once."""

from __future__ import annotations

import gc
from pathlib import Path

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.embedding_models import tiny_embedder
from tests.frameworks import instruments
from tests.frameworks.instruments import usage
from tests.frameworks.spans import (
    ASKS,
    check_nothing_left,
    check_tool,
    check_tool_async,
    in_memory,
    stream_often,
    stream_often_async,
)
from tests.otel import global_telemetry

ALL, CHAT = {*ASKS}, {("chat", False), ("chat", True)}
WHOLE_RESPONSES = ("responses", False)
TOOLS = {
    "logfire": (instruments.logfire, ALL, ALL),
    "openai_v2": (instruments.openai_v2, CHAT, CHAT),
    "openinference": (instruments.openinference, ALL, {*CHAT, WHOLE_RESPONSES}),
}
"""The tool, the calls that it sees, and those of which it says the usage, as it does with the SDK's own clients."""


@pytest.mark.parametrize("tool", TOOLS)
def test_one_span_of_the_tool_and_one_of_the_engine(tool: str, model_path: Path) -> None:
    instrument, sees, says = TOOLS[tool]
    with global_telemetry() as telemetry, LocalOpenAI(model_path) as client:
        check_tool(telemetry, instrument, client, sees, says)


@pytest.mark.parametrize("tool", TOOLS)
def test_embeddings_and_failures_have_a_span_of_each_too(tool: str) -> None:
    instrument = TOOLS[tool][0]
    with global_telemetry() as telemetry, LocalOpenAI(tiny_embedder()) as client, instrument(telemetry, client):
        made = client.embeddings.create(model="text-embedding-3-small", input=["one two", "three"])
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="any", messages=[])
    engine, others = telemetry.engine_spans, [span for span in telemetry.spans if span not in telemetry.engine_spans]
    assert [dict(span.attributes or {}).get("error.type") for span in engine] == [None, "BadRequestError"]
    assert (engine[0].attributes or {})["localai_shim.input_tokens"] == made.usage.prompt_tokens
    for span, other in zip(engine, others, strict=True):
        assert span.parent is not None and span.parent.span_id == other.context.span_id
    assert others[1].status.status_code.name == "ERROR" and all(usage(span) is None for span in engine)


@pytest.mark.anyio
@pytest.mark.parametrize("tool", TOOLS)
async def test_one_span_of_the_tool_and_one_of_the_engine_for_tasks(tool: str, model_path: Path) -> None:
    instrument, sees, says = TOOLS[tool]
    with global_telemetry() as telemetry:
        async with AsyncLocalOpenAI(model_path) as client:
            await check_tool_async(telemetry, instrument, client, sees, says)


def test_spans_and_metrics_go_on_when_logfire_is_configured_again(model_path: Path) -> None:
    with LocalOpenAI(model_path) as client:
        for _ in range(2):
            with global_telemetry() as telemetry:
                check_tool(telemetry, instruments.logfire, client, ALL, ALL)
            gc.collect()


@pytest.mark.parametrize("tool", TOOLS)
def test_streams_leave_nothing_in_memory(tool: str, model_path: Path) -> None:
    with global_telemetry() as telemetry, LocalOpenAI(model_path) as client, TOOLS[tool][0](telemetry, client):
        stream_often(client, 6)
        before = in_memory()
        stream_often(client)
        check_nothing_left(before)


@pytest.mark.anyio
@pytest.mark.parametrize("tool", TOOLS)
async def test_streams_leave_nothing_in_memory_for_tasks(tool: str, model_path: Path) -> None:
    with global_telemetry() as telemetry:
        async with AsyncLocalOpenAI(model_path) as client:
            with TOOLS[tool][0](telemetry, client):
                await stream_often_async(client, 6)
                before = in_memory()
                await stream_often_async(client)
                check_nothing_left(before)
