"""As `test_engine_spans`, with tools that cannot be installed beside those, or that do without OpenTelemetry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.frameworks import instruments
from tests.frameworks.spans import ASKS, ask, check_tool, check_tool_async
from tests.otel import global_telemetry


@pytest.mark.anyio
async def test_genai_openai(model_path: Path) -> None:
    pytest.importorskip("opentelemetry.instrumentation.genai.openai")
    with global_telemetry() as telemetry, LocalOpenAI(model_path) as client:
        check_tool(telemetry, instruments.genai_openai, client, {*ASKS}, {*ASKS})
        telemetry.exporter.clear()
        async with AsyncLocalOpenAI(model_path) as shared:
            await check_tool_async(telemetry, instruments.genai_openai, shared, {*ASKS}, {*ASKS})


@pytest.mark.filterwarnings("ignore:langsmith:DeprecationWarning")  # of its own modules, about its own modules
def test_langsmith(model_path: Path) -> None:
    """It has runs of its own; the engine's span has the usage then."""
    langsmith = pytest.importorskip("langsmith")
    from langsmith.wrappers import wrap_openai

    class Recording(langsmith.Client):  # type: ignore[misc,name-defined]
        ended: list[Any] = []  # noqa: RUF012

        def create_run(self, *_: Any, **__: Any) -> None:
            pass

        def update_run(self, run_id: Any, **fields: Any) -> None:
            self.ended.append(fields)

    recording = Recording(api_url="http://127.0.0.1:9", api_key="none", auto_batch_tracing=False)
    with (
        global_telemetry() as telemetry,
        LocalOpenAI(model_path) as client,
        langsmith.tracing_context(enabled=True, client=recording),
    ):
        wrapped = wrap_openai(client)
        for way in ASKS:
            answer = ask(wrapped, way)
            [run], recording.ended = recording.ended, []
            usage = json.loads(json.dumps(run["outputs"], default=str))["usage_metadata"]
            assert (usage["input_tokens"], usage["output_tokens"]) == answer
            span, attributes = telemetry.one()
            assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == answer
            assert span.parent is None
