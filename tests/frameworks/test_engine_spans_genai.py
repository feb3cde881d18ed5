"""As `test_engine_spans`, with tools that cannot be installed beside those, or that do without OpenTelemetry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.frameworks import instruments
from tests.frameworks.spans import (
    ASKS,
    ask,
    ask_async,
    check_nothing_left,
    check_tool,
    check_tool_async,
    in_memory,
    stream_often,
    stream_often_async,
)
from tests.otel import Telemetry, global_telemetry


@pytest.mark.anyio
async def test_genai_openai(model_path: Path) -> None:
    pytest.importorskip("opentelemetry.instrumentation.genai.openai")
    with global_telemetry() as telemetry, LocalOpenAI(model_path) as client:
        check_tool(telemetry, instruments.genai_openai, client, {*ASKS}, {*ASKS})
    with global_telemetry() as telemetry:
        async with AsyncLocalOpenAI(model_path) as shared:
            await check_tool_async(telemetry, instruments.genai_openai, shared, {*ASKS}, {*ASKS})


@pytest.mark.anyio
async def test_streams_leave_nothing_in_memory_with_genai_openai(model_path: Path) -> None:
    pytest.importorskip("opentelemetry.instrumentation.genai.openai")
    with (
        global_telemetry() as telemetry,
        LocalOpenAI(model_path) as client,
        instruments.genai_openai(telemetry, client),
    ):
        async with AsyncLocalOpenAI(model_path) as shared:
            stream_often(client, 6)
            await stream_often_async(shared, 6)
            before = in_memory()
            stream_often(client)
            await stream_often_async(shared)
            check_nothing_left(before)


def recording_client() -> Any:
    """A LangSmith client that keeps what has ended in `ended`, and sends nothing."""
    langsmith = pytest.importorskip("langsmith")

    class Recording(langsmith.Client):  # type: ignore[misc,name-defined]
        ended: list[Any] = []  # noqa: RUF012

        def create_run(self, *_: Any, **__: Any) -> None:
            pass

        def update_run(self, run_id: Any, **fields: Any) -> None:
            self.ended.append(fields)

    return Recording(api_url="http://127.0.0.1:9", api_key="none", auto_batch_tracing=False)


def check_langsmith(telemetry: Telemetry, recording: Any, answer: tuple[int, int]) -> None:
    """LangSmith's run and the engine's span both have the answer's usage."""
    [run], recording.ended = recording.ended, []
    usage = json.loads(json.dumps(run["outputs"], default=str))["usage_metadata"]
    assert (usage["input_tokens"], usage["output_tokens"]) == answer
    span, attributes = telemetry.one()
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == answer
    assert span.parent is None


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it calls asyncio itself
@pytest.mark.filterwarnings("ignore:langsmith:DeprecationWarning")  # of its own modules, about its own modules
async def test_langsmith(model_path: Path) -> None:
    """It has runs of its own; the engine's span has the usage then."""
    recording = recording_client()
    from langsmith import tracing_context
    from langsmith.wrappers import wrap_openai

    with (
        global_telemetry() as telemetry,
        LocalOpenAI(model_path) as client,
        tracing_context(enabled=True, client=recording),
    ):
        async with AsyncLocalOpenAI(model_path) as shared:
            client, shared = wrap_openai(client), wrap_openai(shared)
            for way in ASKS:
                check_langsmith(telemetry, recording, ask(client, way))
                check_langsmith(telemetry, recording, await ask_async(shared, way))


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it calls asyncio itself
@pytest.mark.filterwarnings("ignore:langsmith:DeprecationWarning")
async def test_streams_leave_nothing_in_memory_with_langsmith(model_path: Path) -> None:
    recording = recording_client()
    from langsmith import tracing_context
    from langsmith.wrappers import wrap_openai

    with LocalOpenAI(model_path) as client, tracing_context(enabled=True, client=recording):
        async with AsyncLocalOpenAI(model_path) as shared:
            client, shared = wrap_openai(client), wrap_openai(shared)
            stream_often(client, 6)
            await stream_often_async(shared, 6)
            recording.ended.clear()
            before = in_memory()
            stream_often(client)
            await stream_often_async(shared)
            recording.ended.clear()
            check_nothing_left(before)
