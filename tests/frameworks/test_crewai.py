"""CrewAI's LLM, and an agent of its."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim import http_client
from tests.frameworks.kit import Answer, Behaviours, Weather, framework, get_weather

crewai = framework("crewai")
tools = framework("crewai.tools")
pytestmark = pytest.mark.weekly


class TestChat(Behaviours):
    snippet = "crewai"

    def ask(self, text: str) -> Any:
        before = self.docs.llm.get_token_usage_summary()
        made = self.docs.llm.call(text)
        after = self.docs.llm.get_token_usage_summary()
        spent = (after.prompt_tokens - before.prompt_tokens, after.completion_tokens - before.completion_tokens)
        return Answer(made, *spent)

    def stream(self, text: str) -> Any:
        bus, events = framework("crewai.events"), []
        with bus.crewai_event_bus.scoped_handlers():
            bus.crewai_event_bus.on(bus.LLMStreamChunkEvent)(lambda _, event: events.append(event.chunk))
            self.docs.llm.stream = True
            self.docs.llm.call(text)
            bus.crewai_event_bus.flush()
        return events

    def use_tool(self, text: str) -> Any:
        agent = crewai.Agent(
            role="Assistant",
            goal="Help.",
            backstory="None.",
            llm=self.docs.llm,
            tools=[tools.tool("get_weather")(get_weather)],
        )
        return agent.kickoff(text).raw

    def fill_in(self, text: str) -> Any:
        return self.docs.llm.call(text, response_model=Weather)


def test_one_http_client_is_handed_to_two_kinds_of_clients(local_openai: Any) -> None:
    """What the page warns of."""
    options = {"http_client": http_client(engine=local_openai.stage)}
    with pytest.raises(ImportError, match="AsyncClient"):
        crewai.LLM(model="gpt-4o", provider="openai", api_key="unused", client_params=options)
