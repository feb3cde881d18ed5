"""AutoGen's client for chat completions, and its assistant."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.kit import Answer, Behaviours, Weather, framework, get_weather

autogen = framework("autogen_agentchat.agents")
models = framework("autogen_core.models")
pytestmark = pytest.mark.weekly


def user(text: str) -> list[Any]:
    return [models.UserMessage(content=text, source="user")]


class TestChat(Behaviours):
    snippet = "autogen"

    async def ask(self, text: str) -> Answer:
        result = await self.docs.model.create(user(text))
        return Answer(result.content, result.usage.prompt_tokens, result.usage.completion_tokens)

    async def stream(self, text: str) -> list[str]:
        return [piece async for piece in self.docs.model.create_stream(user(text)) if isinstance(piece, str)]

    async def use_tool(self, text: str) -> str:
        agent = autogen.AssistantAgent(
            "assistant", self.docs.model, tools=[get_weather], system_message="Be brief.", reflect_on_tool_use=True
        )
        return (await agent.run(task=text)).messages[-1].content

    async def fill_in(self, text: str) -> Weather:
        result = await self.docs.model.create(user(text), json_output=Weather)
        return Weather.model_validate_json(result.content)
