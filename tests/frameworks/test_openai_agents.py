"""openai-agents with its default model and settings, over both APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from localai_shim.testing import patch_openai, tool_call
from tests.frameworks.kit import Answer, Behaviours, Weather, framework, get_weather, run_snippet

agents = framework("agents")


class TestResponses(Behaviours):
    snippet = "openai-agents"
    api: Any = "responses"

    def prepare(self) -> None:
        agents.set_default_openai_api(self.api)

    def finish(self) -> None:
        agents.set_default_openai_api("responses")

    async def ask(self, text: str) -> Answer:
        result = await agents.Runner.run(agents.Agent(name="Assistant"), text)
        usage = result.context_wrapper.usage
        return Answer(result.final_output, usage.input_tokens, usage.output_tokens)

    async def stream(self, text: str) -> list[str]:
        result = agents.Runner.run_streamed(agents.Agent(name="Assistant"), text)
        events = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
        return [event.delta for event in events if event.type == "response.output_text.delta"]

    async def use_tool(self, text: str) -> str:
        agent = agents.Agent(name="Assistant", instructions="Be brief.", tools=[agents.function_tool(get_weather)])
        return (await agents.Runner.run(agent, text)).final_output

    async def fill_in(self, text: str) -> Weather:
        return (await agents.Runner.run(agents.Agent(name="Assistant", output_type=Weather), text)).final_output

    def test_handing_over_to_another_agent(self, local_openai: Any) -> None:
        tutor = agents.Agent(name="Math Tutor", handoff_description="Specialist agent for math questions")
        agent = agents.Agent(name="Triage", instructions="You route.", handoffs=[tutor])
        local_openai.script(tool_call("transfer_to_math_tutor"), "It is 2.")
        result = asyncio.run(agents.Runner.run(agent, "1 + 1?"))
        assert (result.final_output, result.last_agent.name) == ("It is 2.", "Math Tutor")


class TestChat(TestResponses):
    api = "chat_completions"


def test_under_a_patch_no_trace_is_sent_with_the_placeholder_for_a_key(
    local_openai: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents.tracing.provider import DefaultTraceProvider

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with patch_openai(local_openai):
        assert isinstance(DefaultTraceProvider().create_trace("A trace"), agents.tracing.traces.NoOpTrace)
    assert not isinstance(DefaultTraceProvider().create_trace("A trace"), agents.tracing.traces.NoOpTrace)


def test_traces_stay_here_even_where_the_client_is_used_for_them(
    local_openai: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exporter has no key, and skips; the guard of this run would see it reach out."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agents.set_default_openai_client(run_snippet("openai-agents", local_openai.stage).client)
    exporter = agents.tracing.processors.default_exporter()
    assert not exporter.api_key
    local_openai.script("Hello!")
    asyncio.run(agents.Runner.run(agents.Agent(name="Assistant"), "Hi"))
    agents.tracing.get_trace_provider().force_flush()
