"""Below the one span that a tracing tool makes of a call there is one of the engine's, and tokens are counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.frameworks import instruments
from tests.frameworks.spans import ASKS, check_tool, check_tool_async
from tests.telemetry import global_telemetry

ALL, CHAT = {*ASKS}, {("chat", False), ("chat", True)}
WHOLE_RESPONSES = ("responses", False)
TOOLS = {
    "logfire": (instruments.logfire, ALL, {*CHAT, WHOLE_RESPONSES}),
    "openai_v2": (instruments.openai_v2, CHAT, CHAT),
    "openinference": (instruments.openinference, ALL, {*CHAT, WHOLE_RESPONSES}),
}
"""The tool, the calls that it sees, and those of which it says the usage, as it does with the SDK's own clients."""


@pytest.mark.parametrize("tool", TOOLS)
def test_one_span_of_the_tool_and_one_of_the_engine(tool: str, model_path: Path) -> None:
    instrument, sees, says = TOOLS[tool]
    with global_telemetry() as telemetry, LocalOpenAI(model_path) as client:
        check_tool(telemetry, instrument, client, sees, says)


@pytest.mark.anyio
@pytest.mark.parametrize("tool", TOOLS)
async def test_the_same_for_tasks(tool: str, model_path: Path) -> None:
    instrument, sees, says = TOOLS[tool]
    with global_telemetry() as telemetry:
        async with AsyncLocalOpenAI(model_path) as client:
            await check_tool_async(telemetry, instrument, client, sees, says)
