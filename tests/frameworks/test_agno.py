"""agno's agents over both APIs, sync and async."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.kit import Answer, Behaviours, Weather, framework, get_weather

agent = framework("agno.agent")
models = framework("agno.models.openai")
pytestmark = pytest.mark.weekly


def answer(output: Any) -> Answer:
    return Answer(output.content, output.metrics.input_tokens, output.metrics.output_tokens)


class TestChat(Behaviours):
    snippet = "agno"

    def prepare(self) -> None:
        self.model = self.docs.model

    def agent(self, **more: Any) -> Any:
        return agent.Agent(model=self.model, telemetry=False, **more)

    def ask(self, text: str) -> Any:
        return answer(self.agent().run(text))

    def stream(self, text: str) -> Any:
        return [event.content for event in self.agent().run(text, stream=True)]

    def use_tool(self, text: str) -> Any:
        return self.agent(tools=[get_weather]).run(text).content

    def fill_in(self, text: str) -> Any:
        return self.agent(output_schema=Weather).run(text).content


class TestResponses(TestChat):
    def prepare(self) -> None:
        chat = self.docs.model
        self.model = models.OpenAIResponses(id="gpt-4o", client=chat.client, async_client=chat.async_client)


class TestAsyncChat(TestChat):
    async def ask(self, text: str) -> Answer:
        return answer(await self.agent().arun(text))

    async def stream(self, text: str) -> list[str]:
        return [event.content async for event in self.agent().arun(text, stream=True)]

    async def use_tool(self, text: str) -> str:
        return (await self.agent(tools=[get_weather]).arun(text)).content

    async def fill_in(self, text: str) -> Weather:
        return (await self.agent(output_schema=Weather).arun(text)).content


class TestAsyncResponses(TestAsyncChat, TestResponses):
    pass
