"""pydantic-ai's agents over both APIs, with its three ways to a structured answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from localai_shim.testing import tool_call
from tests.frameworks.kit import Answer, Behaviours, Weather, check_filled, fill, framework, get_weather

pydantic_ai = framework("pydantic_ai")
models = framework("pydantic_ai.models.openai")


class TestChat(Behaviours):
    snippet = "pydantic-ai"

    def prepare(self) -> None:
        self.model = self.docs.agent.model

    async def ask(self, text: str) -> Answer:
        result = await pydantic_ai.Agent(self.model).run(text)
        return Answer(result.output, result.usage.input_tokens, result.usage.output_tokens)

    async def stream(self, text: str) -> list[str]:
        async with pydantic_ai.Agent(self.model).run_stream(text) as result:
            return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

    async def use_tool(self, text: str) -> str:
        return (await pydantic_ai.Agent(self.model, tools=[get_weather]).run(text)).output

    async def fill_in(self, text: str) -> Weather:
        return (await pydantic_ai.Agent(self.model, output_type=Weather).run(text)).output

    @pytest.mark.parametrize("way", ["ToolOutput", "NativeOutput", "PromptedOutput"])
    def test_each_way_to_a_structured_answer(self, local_openai: Any, way: str) -> None:
        local_openai.script(fill)
        agent = pydantic_ai.Agent(self.model, output_type=getattr(pydantic_ai, way)(Weather))
        check_filled(agent.run_sync("How is the weather in Paris?").output)

    def test_a_stream_that_calls_a_tool(self, local_openai: Any) -> None:
        local_openai.script(tool_call("get_weather", city="Paris"), "It is sunny in Paris.")

        async def main() -> list[str]:
            agent = pydantic_ai.Agent(self.model, tools=[get_weather])
            async with agent.run_stream("Weather?") as result:
                return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

        assert "".join(asyncio.run(main())) == "It is sunny in Paris."

    def test_a_call_that_the_model_made_wrongly_is_asked_for_again(self, local_openai: Any) -> None:
        local_openai.script(tool_call("final_result", '{"city": "Par'), fill)
        agent = pydantic_ai.Agent(self.model, output_type=Weather)
        check_filled(agent.run_sync("How is the weather?").output)


class TestResponses(TestChat):
    def prepare(self) -> None:
        self.model = models.OpenAIResponsesModel("gpt-5", provider=self.docs.provider)
