"""The SDK's own loop over tools, on top of responses: plain, streamed, with calls that run while others are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call

runner = pytest.importorskip(
    "openai.lib.responses_tool_runner", reason=f"openai {openai.__version__} has no tool runner"
)

TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
MODES: list[dict[str, Any]] = [{}, {"stream": True}, {"stream": True, "eager": True}]
ASK: Any = {"model": "m", "input": "What is the weather in Paris and in Rome?"}


def decide(request: Any, prompt: str, before: int) -> str:
    """Calls for two cities at once, then says what was found out."""
    if "found Paris" in prompt and "found Rome" in prompt:
        return "Sunny in both."
    return call("get_weather", {"city": "Paris"}) + "\n" + call("get_weather", {"city": "Rome"})


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    made = ScriptedEngine(decide)
    yield made
    made.close()


@pytest.mark.parametrize("mode", MODES, ids=["whole", "streamed", "eager"])
def test_the_tool_runner_runs_the_calls_and_comes_to_an_answer(engine: ScriptedEngine, mode: dict[str, Any]) -> None:
    asked: list[str] = []

    def weather(arguments: dict[str, Any]) -> str:
        asked.append(arguments["city"])
        return json.dumps({"found": f"found {arguments['city']}"})

    with LocalOpenAI(engine=engine) as client:
        tools = runner.ResponsesToolRunner(functions=[runner.RegisteredFunction(TOOL, weather)])
        made = tools.run(client, ASK, **mode)
    assert made.output_text == "Sunny in both." and sorted(asked) == ["Paris", "Rome"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("mode", MODES, ids=["whole", "streamed", "eager"])
async def test_async_too(engine: ScriptedEngine, mode: dict[str, Any]) -> None:
    async def weather(arguments: dict[str, Any]) -> str:
        return f"found {arguments['city']}"

    async with AsyncLocalOpenAI(engine=engine) as client:
        tools = runner.AsyncResponsesToolRunner(functions=[runner.AsyncRegisteredFunction(TOOL, weather)])
        made = await tools.run(client, ASK, **mode)
    assert made.output_text == "Sunny in both."
