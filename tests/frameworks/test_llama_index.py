"""LlamaIndex's OpenAI models over both APIs, sync and async, and its agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.frameworks import hearing
from tests.frameworks.kit import Answer, Behaviours, Weather, answer_with, framework, get_weather

llms = framework("llama_index.core.llms")
openai_llms = framework("llama_index.llms.openai")
workflow = framework("llama_index.core.agent.workflow")
prompts = framework("llama_index.core.prompts")
whisper = framework("llama_index.readers.whisper")
pytestmark = pytest.mark.weekly


def user(text: str) -> list[Any]:
    return [llms.ChatMessage(role="user", content=text)]


def answer(response: Any) -> Answer:
    return answer_with(response.message.content, response.raw.usage.model_dump())


class TestChat(Behaviours):
    snippet = "llama-index"

    def prepare(self) -> None:
        self.llm = self.docs.llm

    def ask(self, text: str) -> Any:
        return answer(self.llm.chat(user(text)))

    def stream(self, text: str) -> Any:
        return [chunk.delta for chunk in self.llm.stream_chat(user(text))]

    async def use_tool(self, text: str) -> str:
        agent = workflow.FunctionAgent(tools=[get_weather], llm=self.llm)
        return str(await agent.run(text))

    def fill_in(self, text: str) -> Any:
        return self.llm.structured_predict(Weather, prompts.PromptTemplate(text))


class TestResponses(TestChat):
    def prepare(self) -> None:
        client, async_client = self.docs.llm._client, self.docs.llm._aclient
        self.llm = openai_llms.OpenAIResponses(
            model="gpt-4o", api_key="unused", openai_client=client, async_openai_client=async_client
        )


class TestAsyncChat(TestChat):
    async def ask(self, text: str) -> Answer:
        return answer(await self.llm.achat(user(text)))

    async def stream(self, text: str) -> list[str]:
        return [chunk.delta async for chunk in await self.llm.astream_chat(user(text))]

    async def fill_in(self, text: str) -> Weather:
        return await self.llm.astructured_predict(Weather, prompts.PromptTemplate(text))


class TestAsyncResponses(TestAsyncChat, TestResponses):
    pass


# -- audio ----------------------------------------------------------------------------------------------------------


def test_a_reader_of_audio_has_the_text_of_a_path_and_of_bytes_sync_and_async(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(hearing.recording())
    names = hearing.models()

    async def main(client: LocalOpenAI) -> None:
        async with AsyncLocalOpenAI(models=names) as async_client:
            reader = whisper.WhisperReader(client=client, async_client=async_client)
            [of_path] = reader.load_data(path)
            [of_bytes] = await reader.aload_data(path.read_bytes())
        assert of_path.text.strip() and of_path.text == of_bytes.text

    with LocalOpenAI(models=names) as client:
        asyncio.run(main(client))
