"""Tools that OpenAI hosts, as frameworks ask for them, served by functions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, http_client
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import ANSWER, ASKS_CODE, ASKS_SEARCH, RAN, URL, Hooks, script
from tests.frameworks.kit import framework


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script(ASKS_SEARCH, ASKS_CODE, ANSWER)) as made:
        yield made


CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}


class TestOpenAIAgents:
    @pytest.mark.parametrize("streamed", [False, True])
    def test_its_web_search_and_code_interpreter_run_unchanged(self, engine: ScriptedEngine, streamed: bool) -> None:
        agents, hooks = framework("agents"), Hooks()
        search = agents.WebSearchTool(user_location={"type": "approximate", "city": "Paris"}, search_context_size="low")
        tools = [search, agents.CodeInterpreterTool(tool_config=CODE)]

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine, hosted_tools=hooks.all) as client:
                model = agents.OpenAIResponsesModel(model="gpt-4o", openai_client=client)
                agent = agents.Agent(name="Assistant", tools=tools, model=model)
                if not streamed:
                    first = await agents.Runner.run(agent, "Weather?")
                else:
                    first = agents.Runner.run_streamed(agent, "Weather?")
                    async for _ in first.stream_events():
                        pass
                return first, await agents.Runner.run(
                    agent, [*first.to_input_list(), {"role": "user", "content": "So?"}]
                )

        first, second = asyncio.run(main())
        assert first.final_output == ANSWER
        assert [item.raw_item.type for item in first.new_items] == [
            "web_search_call",
            "code_interpreter_call",
            "message",
        ]
        [annotation] = first.new_items[-1].raw_item.content[0].annotations
        assert annotation.url == URL
        query, options = hooks.calls[0]
        assert query == "weather Paris" and options["search_context_size"] == "low"
        assert options["user_location"]["city"] == "Paris" and hooks.calls[1][0] == RAN
        assert second.final_output
        assert "Rain in Paris." in engine.prompts[-1]


class TestLangChain:
    @pytest.mark.parametrize("streamed", [False, True])
    def test_its_built_in_tools_run_unchanged(self, engine: ScriptedEngine, streamed: bool) -> None:
        chat_openai = framework("langchain_openai").ChatOpenAI
        hooks = Hooks()
        with http_client(engine=engine, hosted_tools=hooks.all) as transport:
            model = chat_openai(model="gpt-4o", api_key="unused", http_client=transport, use_responses_api=True)
            bound = model.bind_tools([{"type": "web_search"}, CODE])
            if streamed:
                first: Any = None
                for chunk in bound.stream("Weather?"):
                    first = chunk if first is None else first + chunk
            else:
                first = bound.invoke("Weather?")
            bound.invoke([{"role": "user", "content": "Weather?"}, first, {"role": "user", "content": "So?"}])
        assert str(first.text) == ANSWER and len(hooks.calls) == 2
        assert "Rain in Paris." in engine.prompts[-1]


class TestPydanticAI:
    def test_its_web_search_and_code_execution_run_unchanged(self, engine: ScriptedEngine) -> None:
        ai = framework("pydantic_ai")
        from pydantic_ai.capabilities import NativeTool
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        hooks = Hooks()

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine, hosted_tools=hooks.all) as client:
                model = OpenAIResponsesModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
                tools = [NativeTool(ai.WebSearchTool()), NativeTool(ai.CodeExecutionTool())]
                agent: Any = ai.Agent(model, capabilities=tools)
                first = await agent.run("Weather?")
                return first, await agent.run("So?", message_history=first.all_messages())

        first, second = asyncio.run(main())
        assert (first.output, second.output) == (ANSWER, ANSWER)
        assert [call[0] for call in hooks.calls[:2]] == ["weather Paris", RAN]
