"""Files as frameworks send them, in chat completions and in responses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, http_client
from localai_shim.testing import ScriptedEngine
from tests.documents.files import pdf
from tests.endpoints.input_files import data_url, encoded, reading, shown
from tests.frameworks.kit import framework

REPORT = pdf("Revenue grew by 12 percent.", "Costs fell.")
TEXT = "Revenue grew by 12 percent.\n\nCosts fell."


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEngine]:
    """A model that reads text only."""
    with reading(monkeypatch) as made:
        yield made


@pytest.mark.parametrize("responses", [False, True])
class TestLangChain:
    def test_its_file_blocks_are_read(self, engine: ScriptedEngine, responses: bool) -> None:
        chat_openai = framework("langchain_openai").ChatOpenAI
        with http_client(engine=engine) as transport:
            model = chat_openai(model="gpt-4o", api_key="unused", http_client=transport, use_responses_api=responses)
            block = {"type": "file", "base64": encoded(REPORT), "mime_type": "application/pdf", "filename": "r.pdf"}
            message = {"role": "user", "content": [{"type": "text", "text": "Sum it up."}, block]}
            first = model.invoke([message])
            model.invoke([message, first, {"role": "user", "content": "And?"}])
            assert str(first.text) == "Yes."
        assert [f"Sum it up.\n\n{shown('r.pdf', TEXT)}" in prompt for prompt in engine.prompts] == [True, True]


@pytest.mark.parametrize("responses", [False, True])
class TestPydanticAI:
    def test_its_binary_content_is_read(self, engine: ScriptedEngine, responses: bool) -> None:
        ai = framework("pydantic_ai")
        content = ["Sum it up.", ai.BinaryContent(REPORT, media_type="application/pdf")]

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine) as client:
                agent: Any = ai.Agent(model_of(client, responses))
                first = await agent.run(content)
                return first, await agent.run("And?", message_history=first.all_messages())

        first, second = asyncio.run(main())
        assert (first.output, second.output) == ("Yes.", "Yes.")
        assert [TEXT in prompt for prompt in engine.prompts] == [True, True]


class TestPydanticAIUrls:
    def test_its_document_urls_are_read_by_responses(self, engine: ScriptedEngine) -> None:
        """For chat completions, pydantic-ai fetches such files itself."""
        ai = framework("pydantic_ai")
        url = ai.DocumentUrl(data_url(b"<p>Costs <b>fell</b>.</p>", "text/html"), media_type="text/html")

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine) as client:
                return await ai.Agent(model_of(client, True)).run(["Sum it up.", url])

        assert asyncio.run(main()).output == "Yes."
        assert "Costs fell." in engine.prompts[-1]


class TestOpenAIAgents:
    def test_its_file_inputs_are_read(self, engine: ScriptedEngine) -> None:
        agents = framework("agents")

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine) as client:
                file = await client.files.create(file=("r.pdf", REPORT), purpose="user_data")
                agent = agents.Agent(name="A", model=agents.OpenAIResponsesModel("gpt-4o", openai_client=client))
                parts = [{"type": "input_file", "file_id": file.id}, {"type": "input_text", "text": "Sum it up."}]
                return await agents.Runner.run(agent, [{"role": "user", "content": parts}])

        assert asyncio.run(main()).final_output == "Yes."
        assert f"{shown('r.pdf', TEXT)}\n\nSum it up." in engine.prompts[-1]


def model_of(client: AsyncLocalOpenAI, responses: bool) -> Any:
    """pydantic-ai's model for one of the two APIs."""
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return (OpenAIResponsesModel if responses else OpenAIChatModel)(
        "gpt-4o", provider=OpenAIProvider(openai_client=client)
    )
