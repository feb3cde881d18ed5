"""Tools that OpenAI hosts, as frameworks ask for them, served by functions."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, http_client
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import ANSWER, ASKS_CODE, ASKS_SEARCH, RAN, URL, Hooks, script
from tests.endpoints.pictures import png
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

    def test_its_image_generation_runs_unchanged(self) -> None:
        agents = framework("agents")
        tool = agents.ImageGenerationTool(tool_config={"type": "image_generation", "quality": "low"})
        prompts = []

        def draw(prompt: str, quality: str) -> bytes:
            prompts.append((prompt, quality))
            return png()

        async def main() -> Any:
            with ScriptedEngine(script(call("image_generation", {"prompt": "rain"}), ANSWER)) as engine:
                async with AsyncLocalOpenAI(engine=engine, hosted_tools={"image_generation": draw}) as client:
                    model = agents.OpenAIResponsesModel(model="gpt-4o", openai_client=client)
                    agent = agents.Agent(name="Assistant", tools=[tool], model=model)
                    first = await agents.Runner.run(agent, "Weather?")
                    asked = [*first.to_input_list(), {"role": "user", "content": "So?"}]
                    return first, await agents.Runner.run(agent, asked)

        first, second = asyncio.run(main())
        image, message = first.new_items
        assert base64.b64decode(image.raw_item.result) == png() and prompts == [("rain", "low")]
        assert message.raw_item.content[0].text == first.final_output == ANSWER and second.final_output


class TestLangChain:
    def test_its_chat_completions_search(self) -> None:
        chat_openai = framework("langchain_openai").ChatOpenAI
        hooks = Hooks()
        with (
            ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine,
            http_client(engine=engine, hosted_tools=hooks.all) as transport,
        ):
            model = chat_openai(model="gpt-4o-search-preview", api_key="unused", http_client=transport)
            made = model.invoke("Weather?", web_search_options={})
        assert made.content == ANSWER and len(hooks.calls) == 1

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
