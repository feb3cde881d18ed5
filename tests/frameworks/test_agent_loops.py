"""Agents of three frameworks with models of every family: two tools, parallel calls, one that fails, a made object."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from tests.frameworks.kit import Weather, framework, run_snippet
from tests.frameworks.loops import EACH, QUESTION, Family


class TestOpenAIAgents:
    agents = framework("agents")

    @pytest.fixture(autouse=True)
    def _default_api(self, api: Any) -> Any:
        self.agents.set_default_openai_api(api)
        yield
        self.agents.set_default_openai_api("responses")

    def _agent(self, family: Family) -> Any:
        run_snippet("openai-agents", family.engine)
        tools = [
            self.agents.function_tool(each, failure_error_function=lambda _context, error: str(error))
            for each in (family.get_weather, family.add_numbers)
        ]
        return self.agents.Agent(name="Assistant", instructions="Be brief.", tools=tools, output_type=Weather)

    @EACH
    def test_whole(self, name: str, api: str) -> None:
        family = Family(name)
        made = asyncio.run(self.agents.Runner.run(self._agent(family), QUESTION))
        family.check(made.final_output)

    @EACH
    def test_streamed(self, name: str, api: str) -> None:
        family = Family(name)

        async def main() -> tuple[Any, str]:
            result = self.agents.Runner.run_streamed(self._agent(family), QUESTION)
            events = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
            text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
            return result.final_output, text

        family.check(*asyncio.run(main()))


class TestLangChain:
    agents = framework("langchain.agents")
    tools = framework("langchain_core.tools")
    strategies = framework("langchain.agents.structured_output")

    def _agent(self, family: Family, api: str) -> Any:
        model = run_snippet("langchain", family.engine).model
        tools = []
        for each in (family.get_weather, family.add_numbers):
            tools.append(self.tools.StructuredTool.from_function(self._failing(each), handle_tool_error=True))
        return self.agents.create_agent(
            model.model_copy(update={"use_responses_api": api == "responses"}),
            tools,
            system_prompt="Be brief.",
            response_format=self.strategies.ProviderStrategy(Weather),
        )

    def _failing(self, tool: Any) -> Any:
        """A tool whose failure is a result, as LangChain has it."""

        @functools.wraps(tool)
        def run(**arguments: Any) -> Any:
            try:
                return tool(**arguments)
            except LookupError as error:
                raise self.tools.ToolException(str(error)) from error

        return run

    @EACH
    def test_whole(self, name: str, api: str) -> None:
        family = Family(name)
        made = self._agent(family, api).invoke({"messages": [("user", QUESTION)]})
        family.check(made["structured_response"])

    @EACH
    def test_streamed(self, name: str, api: str) -> None:
        family = Family(name)
        text, state = "", {}
        question = {"messages": [("user", QUESTION)]}
        for mode, each in self._agent(family, api).stream(question, stream_mode=["messages", "values"]):
            if mode == "values":
                state = each
            elif each[0].type == "AIMessageChunk":
                text += each[0].text
        family.check(state["structured_response"], text)


class TestPydanticAI:
    """Its structured answer is a call of a tool of its own, as it has it by default."""

    ai = framework("pydantic_ai")
    models = framework("pydantic_ai.models.openai")

    def _agent(self, family: Family, api: str) -> Any:
        docs = run_snippet("pydantic-ai", family.engine)
        model = docs.agent.model
        if api == "responses":
            model = self.models.OpenAIResponsesModel("gpt-5", provider=docs.provider)

        def get_weather(city: str) -> str:
            """Get the weather of a city."""
            try:
                return family.get_weather(city)
            except LookupError as error:
                raise self.ai.ModelRetry(str(error)) from error

        return self.ai.Agent(
            model, tools=[get_weather, family.add_numbers], output_type=Weather, instructions="Be brief."
        )

    @EACH
    def test_whole(self, name: str, api: str) -> None:
        family = Family(name, fills="final_result")
        made = asyncio.run(self._agent(family, api).run(QUESTION))
        family.check(made.output)

    @EACH
    def test_streamed(self, name: str, api: str) -> None:
        family = Family(name, fills="final_result")

        async def main() -> Any:
            async with self._agent(family, api).run_stream(QUESTION) as result:
                return await result.get_output()

        family.check(asyncio.run(main()))
