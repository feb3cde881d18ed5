"""Haystack's chat generators over both APIs, and its agent."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from tests.frameworks.kit import Answer, Behaviours, Weather, answer_with, framework, get_weather, run_snippet

haystack = framework("haystack")
generators = framework("haystack.components.generators.chat")
agents = framework("haystack.components.agents")
dataclasses = framework("haystack.dataclasses")
tools = framework("haystack.tools")
pytestmark = pytest.mark.weekly


def user(text: str) -> list[Any]:
    return [dataclasses.ChatMessage.from_user(text)]


def answer(result: Any) -> Answer:
    [reply] = result["replies"]
    return answer_with(reply.text, reply.meta["usage"])


def weather(city: Annotated[str, "Its name."]) -> str:
    """Get the weather of a city."""
    return get_weather(city)


class TestChat(Behaviours):
    snippet = "haystack"

    def prepare(self) -> None:
        self.generator = self.docs.generator

    def ask(self, text: str) -> Any:
        return answer(self.generator.run(user(text)))

    def stream(self, text: str) -> Any:
        pieces: list[str] = []
        self.generator.run(user(text), streaming_callback=lambda chunk: pieces.append(chunk.content))
        return pieces

    def use_tool(self, text: str) -> Any:
        tool = tools.create_tool_from_function(weather, name="get_weather")
        return agents.Agent(chat_generator=self.generator, tools=[tool]).run(user(text))["last_message"].text

    def fill_in(self, text: str) -> Any:
        result = self.generator.run(user(text), generation_kwargs=self.asks_for_weather())
        return Weather.model_validate_json(answer(result).text)

    def asks_for_weather(self) -> dict[str, Any]:
        return {"response_format": Weather}


class TestResponses(TestChat):
    def prepare(self) -> None:
        chat = self.docs.generator
        self.generator = generators.OpenAIResponsesChatGenerator(api_key=chat.api_key, model="gpt-4o")
        self.generator.client, self.generator.async_client = chat.client, chat.async_client

    def asks_for_weather(self) -> dict[str, Any]:
        return {"text_format": Weather}


class TestAsyncChat(TestChat):
    async def ask(self, text: str) -> Answer:
        return answer(await self.generator.run_async(user(text)))

    async def stream(self, text: str) -> list[str]:
        pieces: list[str] = []

        async def take(chunk: Any) -> None:
            await asyncio.sleep(0)
            pieces.append(chunk.content)

        await self.generator.run_async(user(text), streaming_callback=take)
        return pieces


def test_a_generator_that_was_closed_has_forgotten_its_client(local_openai: Any) -> None:
    """What the page warns of."""
    generator = run_snippet("haystack", local_openai.stage).generator
    generator.close()
    assert generator.client is None
