"""Semantic Kernel's chat service, and its agents over both APIs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.kit import Answer, Behaviours, Weather, framework, get_weather

agents = framework("semantic_kernel.agents")
open_ai = framework("semantic_kernel.connectors.ai.open_ai")
contents = framework("semantic_kernel.contents")
functions = framework("semantic_kernel.functions")
pytestmark = pytest.mark.weekly


class Plugin:
    @functions.kernel_function(name="get_weather", description="Get the weather of a city.")
    def weather(self, city: str) -> str:
        return get_weather(city)


def user(text: str) -> Any:
    history = contents.ChatHistory()
    history.add_user_message(text)
    return history


class TestChat(Behaviours):
    snippet = "semantic-kernel"
    tool = "Plugin-get_weather"

    def settings(self, **more: Any) -> Any:
        return open_ai.OpenAIChatPromptExecutionSettings(**more)

    async def ask(self, text: str) -> Answer:
        message = await self.docs.service.get_chat_message_content(user(text), self.settings())
        usage = message.metadata["usage"]
        return Answer(str(message), usage.prompt_tokens, usage.completion_tokens)

    async def stream(self, text: str) -> list[str]:
        chunks = self.docs.service.get_streaming_chat_message_content(user(text), self.settings())
        return [str(chunk) async for chunk in chunks if chunk is not None]

    async def use_tool(self, text: str) -> str:
        agent = agents.ChatCompletionAgent(service=self.docs.service, name="Assistant", plugins=[Plugin()])
        return str((await agent.get_response(text)).message)

    async def fill_in(self, text: str) -> Weather:
        made = await self.docs.service.get_chat_message_content(user(text), self.settings(response_format=Weather))
        return Weather.model_validate_json(str(made))


class TestResponses(TestChat):
    def prepare(self) -> None:
        self.agent = agents.OpenAIResponsesAgent(
            ai_model_id="gpt-4o", client=self.docs.service.client, name="Assistant"
        )

    async def ask(self, text: str) -> Answer:
        message = (await self.agent.get_response(text)).message
        usage = message.metadata["usage"]
        return Answer(str(message), usage["input_tokens"], usage["output_tokens"])

    async def stream(self, text: str) -> list[str]:
        return [str(chunk.message) async for chunk in self.agent.invoke_stream(text)]

    async def use_tool(self, text: str) -> str:
        agent = agents.OpenAIResponsesAgent(
            ai_model_id="gpt-4o", client=self.docs.service.client, name="Assistant", plugins=[Plugin()]
        )
        return str((await agent.get_response(text)).message)

    async def fill_in(self, text: str) -> Weather:
        agent = agents.OpenAIResponsesAgent(
            ai_model_id="gpt-4o",
            client=self.docs.service.client,
            name="Assistant",
            text=agents.OpenAIResponsesAgent.configure_response_format(Weather),
        )
        return Weather.model_validate_json(str((await agent.get_response(text)).message))
