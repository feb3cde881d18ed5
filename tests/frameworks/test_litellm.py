"""LiteLLM, with a client of ours and with its own around our http client, sync and async."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import async_http_client, http_client
from tests.frameworks import hearing
from tests.frameworks.kit import Answer, Behaviours, Weather, framework, get_weather, run_snippet

litellm = framework("litellm")
pytestmark = pytest.mark.weekly

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def answer(response: Any) -> Answer:
    usage = response.usage
    return Answer(response.choices[0].message.content, usage.prompt_tokens, usage.completion_tokens)


def after_call(text: str, response: Any) -> list[Any]:
    """The messages that bring the result of a call."""
    message = response.choices[0].message
    [call] = message.tool_calls
    result = get_weather(**json.loads(call.function.arguments))
    return [*user(text), message, {"role": "tool", "tool_call_id": call.id, "content": result}]


class TestClient(Behaviours):
    snippet = "litellm"

    def prepare(self) -> None:
        self.options: dict[str, Any] = {"client": self.docs.client}
        self.async_options: dict[str, Any] = {"client": self.docs.async_client}

    def complete(self, messages: list[Any], **more: Any) -> Any:
        return litellm.completion("openai/gpt-4o", messages, api_key="unused", **self.options, **more)

    async def acomplete(self, messages: list[Any], **more: Any) -> Any:
        return await litellm.acompletion("openai/gpt-4o", messages, api_key="unused", **self.async_options, **more)

    def ask(self, text: str) -> Any:
        return answer(self.complete(user(text)))

    def stream(self, text: str) -> Any:
        return [chunk.choices[0].delta.content for chunk in self.complete(user(text), stream=True)]

    def use_tool(self, text: str) -> Any:
        called = self.complete(user(text), tools=[TOOL])
        return self.complete(after_call(text, called), tools=[TOOL]).choices[0].message.content

    def fill_in(self, text: str) -> Any:
        response = self.complete(user(text), response_format=Weather)
        return Weather.model_validate_json(response.choices[0].message.content)

    def test_errors_are_litellm_s(self) -> None:
        with pytest.raises(litellm.BadRequestError, match="temperature"):
            self.complete(user("Hi"), temperature=9)


class TestAsyncClient(TestClient):
    async def ask(self, text: str) -> Answer:
        return answer(await self.acomplete(user(text)))

    async def stream(self, text: str) -> list[str]:
        return [chunk.choices[0].delta.content async for chunk in await self.acomplete(user(text), stream=True)]

    async def use_tool(self, text: str) -> str:
        called = await self.acomplete(user(text), tools=[TOOL])
        return (await self.acomplete(after_call(text, called), tools=[TOOL])).choices[0].message.content


class Sessions:
    """As the page's lines have it; what LiteLLM remembers of other tests is forgotten."""

    snippet = "litellm-sessions"

    def prepare(self) -> None:
        self.options: dict[str, Any] = {}
        self.async_options: dict[str, Any] = {}
        litellm.in_memory_llm_clients_cache.flush_cache()

    def finish(self) -> None:
        litellm.client_session = litellm.aclient_session = None
        litellm.in_memory_llm_clients_cache.flush_cache()


class TestSessions(Sessions, TestClient):
    pass


class TestAsyncSessions(Sessions, TestAsyncClient):
    pass


def test_responses_have_a_transport_of_their_own(local_openai: Any) -> None:
    """What the page warns of."""
    run_snippet("litellm-sessions", local_openai.stage)
    with pytest.raises(litellm.InternalServerError, match="refused"):
        litellm.responses("Hi", "openai/gpt-4o", api_key="unused", api_base="http://127.0.0.1:9/v1", max_retries=0)
    Sessions().finish()
    assert not local_openai.calls


# -- audio ----------------------------------------------------------------------------------------------------------

HEAR: dict[str, Any] = {"model": "openai/whisper-1", "api_key": "unused"}
SPEAK: dict[str, Any] = {"model": "openai/gpt-4o-mini-tts", "voice": hearing.VOICE, "api_key": "unused"}


@pytest.fixture
def _audio() -> Iterator[None]:
    """LiteLLM's HTTP clients serve several models."""
    litellm.client_session = http_client(models=hearing.models())
    litellm.aclient_session = async_http_client(models=hearing.models())
    litellm.in_memory_llm_clients_cache.flush_cache()
    yield
    Sessions().finish()


@pytest.mark.usefixtures("_audio")
def test_a_transcription_has_its_text_usage_and_segments_sync_and_async() -> None:
    file = ("a.wav", hearing.recording())
    made = litellm.transcription(file=file, **HEAR)
    assert made.text and made.usage.seconds == 6.0
    assert made.segments and made.duration == 6.0  # LiteLLM asks for verbose_json
    assert asyncio.run(litellm.atranscription(file=file, **HEAR)).text == made.text
    opened = io.BytesIO(hearing.recording())
    opened.name = "a.wav"
    assert litellm.transcription(file=opened, response_format="text", **HEAR).text == made.text
    subtitles = litellm.transcription(file=file, response_format="srt", **HEAR).text
    assert subtitles.startswith("1\n00:00:0") and "-->" in subtitles


@pytest.mark.usefixtures("_audio")
def test_speech_is_a_file_sync_and_async() -> None:
    made = litellm.speech(input="Hello there.", response_format="wav", speed=1, instructions="Slowly.", **SPEAK)
    with wave.open(io.BytesIO(made.content)) as file:
        assert file.getframerate() == hearing.RATE and file.getnframes()

    async def main() -> bytes:
        return (await litellm.aspeech(input="Hello there.", response_format="pcm", **SPEAK)).content

    assert 0 < len(asyncio.run(main())) <= hearing.MAX_BYTES


@pytest.mark.usefixtures("_audio")
def test_errors_of_audio_are_the_sdk_s_and_say_what_to_do() -> None:
    file = ("a.wav", hearing.recording())
    with pytest.raises(openai.BadRequestError, match="Its voices are 'vivian' and 'ryan'"):
        litellm.speech(input="Hi.", response_format="wav", **{**SPEAK, "voice": "bob"})
    with pytest.raises(openai.BadRequestError, match="'whisper-1' and 'gpt-transcribe'"):
        litellm.transcription(file=file, **{**HEAR, "model": "openai/gpt-4o"})
    with pytest.raises(openai.NotFoundError, match="'gpt-4o-mini-tts'"):
        litellm.transcription(file=file, **{**HEAR, "model": "openai/whisper-2"})
