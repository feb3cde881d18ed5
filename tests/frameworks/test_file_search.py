"""File search in vector stores, as openai-agents, LangChain, and the SDK's cookbook use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import script
from tests.frameworks.kit import framework

ANSWER = "30 days, says returns.md."
TEXT = "Shoes can be returned within 30 days."


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script(call("file_search", {"query": "return shoes"}), ANSWER)) as made:
        yield made


def fill(client: Any) -> str:
    """The ID of a vector store with one file."""
    store: str = client.vector_stores.create(name="Support").id
    client.vector_stores.files.upload_and_poll(
        vector_store_id=store, file=("returns.md", TEXT.encode()), poll_interval_ms=5
    )
    return store


def test_the_cookbooks_file_search_runs_unchanged(engine: ScriptedEngine, tmp_path: Path) -> None:
    """As in https://cookbook.openai.com/examples/file_search_responses, with another folder of files."""
    (tmp_path / "returns.md").write_text(TEXT)
    (tmp_path / "fruit.txt").write_text("Bananas are yellow.")
    with LocalOpenAI(engine=engine) as client:
        store = client.vector_stores.create(name="openai_blog_store")
        for path in sorted(tmp_path.iterdir()):
            with path.open("rb") as opened:
                uploaded = client.files.create(file=opened, purpose="assistants")
            client.vector_stores.files.create(vector_store_id=store.id, file_id=uploaded.id)
        for file in client.vector_stores.files.list(store.id):
            assert client.vector_stores.files.poll(file.id, vector_store_id=store.id, poll_interval_ms=5).status
        found = client.vector_stores.search(vector_store_id=store.id, query="Can shoes be returned?")
        assert found.data[0].filename == "returns.md" and found.data[0].content[0].text == TEXT
        response = client.responses.create(
            input="Weather?",
            model="gpt-4o-mini",
            tools=[{"type": "file_search", "vector_store_ids": [store.id]}],
        )
        annotations = response.output[1].content[0].annotations  # type: ignore[union-attr]
        assert {each.filename for each in annotations} == {"returns.md"}
        assert response.output[1].content[0].text == ANSWER  # type: ignore[union-attr]


class TestOpenAIAgents:
    @pytest.mark.parametrize("streamed", [False, True])
    def test_its_file_search_runs_unchanged(self, engine: ScriptedEngine, streamed: bool, tmp_path: Path) -> None:
        agents = framework("agents")
        with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
            store = fill(client)
        tools = [agents.FileSearchTool(max_num_results=3, vector_store_ids=[store], include_search_results=True)]

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
                model = agents.OpenAIResponsesModel(model="gpt-4o", openai_client=client)
                agent = agents.Agent(name="File searcher", tools=tools, model=model)
                if not streamed:
                    return await agents.Runner.run(agent, "Weather?")
                result = agents.Runner.run_streamed(agent, "Weather?")
                async for _ in result.stream_events():
                    pass
                return result

        result = asyncio.run(main())
        assert result.final_output == ANSWER
        search, message = (item.raw_item for item in result.new_items)
        assert search.type == "file_search_call" and search.results[0].text == TEXT
        assert message.content[0].annotations[0].filename == "returns.md"


class TestLangChain:
    def test_its_built_in_file_search_runs_unchanged(self, engine: ScriptedEngine, tmp_path: Path) -> None:
        chat_openai = framework("langchain_openai").ChatOpenAI
        with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
            store = fill(client)
        with http_client(engine=engine, store=tmp_path / "state.db") as transport:
            model = chat_openai(model="gpt-4o", api_key="unused", http_client=transport, use_responses_api=True)
            bound = model.bind_tools([{"type": "file_search", "vector_store_ids": [store]}])
            first = bound.invoke("Weather?")
            bound.invoke([{"role": "user", "content": "Weather?"}, first, {"role": "user", "content": "Weather?"}])
        assert str(first.text) == ANSWER
        assert TEXT in engine.prompts[-1]
