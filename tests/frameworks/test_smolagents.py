"""smolagents: its model, and its agent that calls tools."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.testing import tool_call
from tests.frameworks.kit import Answer, Behaviours, Weather, framework, get_weather

smolagents = framework("smolagents")
pytestmark = pytest.mark.weekly


def user(text: str) -> list[Any]:
    return [smolagents.ChatMessage(role="user", content=[{"type": "text", "text": text}])]


class TestModel(Behaviours):
    snippet = "smolagents"
    ends = tool_call("final_answer", answer="It is sunny in Paris.")

    def ask(self, text: str) -> Any:
        message = self.docs.model.generate(user(text))
        return Answer(message.content, message.token_usage.input_tokens, message.token_usage.output_tokens)

    def stream(self, text: str) -> Any:
        return [delta.content for delta in self.docs.model.generate_stream(user(text))]

    def use_tool(self, text: str) -> Any:
        agent = smolagents.ToolCallingAgent(
            tools=[smolagents.tool(get_weather)], model=self.docs.model, verbosity_level=0
        )
        return agent.run(text)

    def fill_in(self, text: str) -> Any:
        schema = {"name": "weather", "schema": Weather.model_json_schema(), "strict": True}
        format = {"type": "json_schema", "json_schema": schema}
        return Weather.model_validate_json(self.docs.model.generate(user(text), response_format=format).content)

    def test_an_agent_that_writes_code(self, local_openai: Any) -> None:
        local_openai.script("Thought: add.\n<code>\nfinal_answer(1 + 1)\n</code>")
        assert smolagents.CodeAgent(tools=[], model=self.docs.model, verbosity_level=0).run("1 + 1?") == 2
