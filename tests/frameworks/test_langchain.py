"""LangChain's `ChatOpenAI`, sync and async, over both APIs; its agents; a graph of LangGraph."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path
from typing import Annotated, Any, TypedDict

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.frameworks.kit import Answer, Behaviours, Weather, check_filled, fill, framework, get_weather, run_snippet

langchain_openai = framework("langchain_openai")
langchain_agents = framework("langchain.agents")
graphs, prebuilt = framework("langgraph.graph"), framework("langgraph.prebuilt")


def answer(message: Any) -> Answer:
    usage = message.usage_metadata
    return Answer(message.text, usage["input_tokens"], usage["output_tokens"])


class TestChat(Behaviours):
    snippet = "langchain"
    responses = False

    def prepare(self) -> None:
        self.model = self.docs.model.model_copy(update={"use_responses_api": self.responses})

    def ask(self, text: str) -> Any:
        return answer(self.model.invoke(text))

    def stream(self, text: str) -> Any:
        chunks = list(self.model.stream(text))
        assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 0
        return [chunk.text for chunk in chunks]

    def use_tool(self, text: str) -> Any:
        agent = langchain_agents.create_agent(self.model, [get_weather])
        return agent.invoke({"messages": [("user", text)]})["messages"][-1].text

    def fill_in(self, text: str) -> Any:
        return self.model.with_structured_output(Weather).invoke(text)


class TestResponses(TestChat):
    responses = True


class TestAsyncChat(TestChat):
    async def ask(self, text: str) -> Answer:
        return answer(await self.model.ainvoke(text))

    async def stream(self, text: str) -> list[str]:
        return [chunk.text async for chunk in self.model.astream(text)]

    async def use_tool(self, text: str) -> str:
        agent = langchain_agents.create_agent(self.model, [get_weather])
        return (await agent.ainvoke({"messages": [("user", text)]}))["messages"][-1].text

    async def fill_in(self, text: str) -> Weather:
        return await self.model.with_structured_output(Weather).ainvoke(text)


class TestAsyncResponses(TestAsyncChat):
    responses = True


class State(TypedDict):
    messages: Annotated[list[Any], graphs.add_messages]


class TestGraph(TestAsyncChat):
    """A graph of a model and its tools, which streams what the model says as it comes."""

    def prepare(self) -> None:
        super().prepare()
        tools = [get_weather]
        model = self.model.bind_tools(tools)

        async def call_model(state: State) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = graphs.StateGraph(State)
        graph.add_node("model", call_model)
        graph.add_node("tools", prebuilt.ToolNode(tools))
        graph.add_edge(graphs.START, "model")
        graph.add_conditional_edges("model", prebuilt.tools_condition)
        graph.add_edge("tools", "model")
        self.graph = graph.compile()

    async def ask(self, text: str) -> Answer:
        return answer((await self.graph.ainvoke({"messages": [("user", text)]}))["messages"][-1])

    async def stream(self, text: str) -> list[str]:
        events = self.graph.astream({"messages": [("user", text)]}, stream_mode="messages")
        return [chunk.text async for chunk, _ in events]

    async def use_tool(self, text: str) -> str:
        return (await self.ask(text)).text


@pytest.mark.parametrize("method", ["function_calling", "json_mode"])
def test_structured_answers_by_function_calls_and_json_mode(local_openai: Any, method: str) -> None:
    local_openai.script(fill)
    model = run_snippet("langchain", local_openai.stage).model.with_structured_output(Weather, method=method)
    check_filled(model.invoke("How is the weather in Paris? Answer in JSON."))


def test_the_client_itself_is_not_what_client_means() -> None:
    """What the page warns of."""
    model = langchain_openai.ChatOpenAI(model="gpt-4o", api_key="x", client=LocalOpenAI())
    with pytest.raises(AttributeError, match="create"):
        model.invoke("Hi")


def test_root_clients_alone_are_replaced(local_openai: Any) -> None:
    """What the page warns of: these requests would have gone to the network."""
    model = langchain_openai.ChatOpenAI(
        model="gpt-4o", api_key="x", root_client=LocalOpenAI(), root_async_client=AsyncLocalOpenAI()
    )
    assert type(model.root_client) is openai.OpenAI and type(model.root_async_client) is openai.AsyncOpenAI
    asyncio.run(model.root_async_client.close())


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "langgraph_agent.py"), run_name="__main__")
    assert "15 degrees in Paris, sunny." in capsys.readouterr().out
