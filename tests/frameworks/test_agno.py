"""agno's agents over both APIs, sync and async."""

from __future__ import annotations

from typing import Any

import openai
import pytest

import localai_shim
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


def test_an_http_client_is_ignored_and_a_closed_client_replaced(local_openai: Any) -> None:
    """What the page warns of."""
    http = localai_shim.http_client(engine=local_openai.stage)
    assert models.OpenAIChat(id="gpt-4o", api_key="unused", http_client=http).get_client()._client is not http
    client = localai_shim.LocalOpenAI(engine=local_openai.stage)
    model = models.OpenAIChat(id="gpt-4o", api_key="unused", client=client)
    assert model.get_client() is client
    client.close()
    assert type(model.get_client()) is openai.OpenAI
