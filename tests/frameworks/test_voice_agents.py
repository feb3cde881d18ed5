"""openai-agents' voice pipeline: speech becomes text, an agent answers it, and the answer is spoken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI
from tests.frameworks import hearing
from tests.frameworks.kit import framework
from tests.mlx_audio_models import tiny_speech

agents = framework("agents")
voice = framework("agents.voice")

SETTINGS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "all of them": {"language": "en", "prompt": "Ryan", "temperature": 0.0},
}


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    agents.set_tracing_disabled(True)
    yield
    agents.set_tracing_disabled(False)


def make_pipeline(client: Any, speech: dict[str, Any], **hears: Any) -> Any:
    provider = voice.OpenAIVoiceModelProvider(openai_client=client)
    config = voice.VoicePipelineConfig(
        model_provider=provider,
        stt_settings=voice.STTModelSettings(**hears),
        tts_settings=voice.TTSModelSettings(**speech),
        tracing_disabled=True,
    )
    model = agents.OpenAIProvider(openai_client=client).get_model("gpt-4o")
    agent = agents.Agent(name="Assistant", instructions="Be brief.", model=model)
    return voice.VoicePipeline(workflow=voice.SingleAgentVoiceWorkflow(agent), config=config)


async def talk(pipeline: Any) -> tuple[list[str], int, str]:
    """Kinds of events, bytes of sound, and the text that was spoken."""
    result = await pipeline.run(voice.AudioInput(buffer=hearing.samples()))
    events = [event async for event in result.stream()]
    sound = sum(event.data.nbytes for event in events if event.type == "voice_stream_event_audio")
    return [getattr(event, "event", event.type) for event in events], sound, result.total_output_text


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_question_is_heard_and_its_answer_is_spoken(settings: dict[str, Any]) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(models=hearing.models()) as client:
            kinds, sound, text = await talk(make_pipeline(client, {"voice": hearing.VOICE}, **settings))
        assert (kinds[0], kinds[-2:]) == ("turn_started", ["turn_ended", "session_ended"])
        assert {*kinds[1:-2]} == {"voice_stream_event_audio"}
        assert text.strip() and sound > 0 and sound % 32 == 0

    asyncio.run(main())


def test_two_conversations_go_on_at_the_same_time() -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(models=hearing.models()) as client:
            made = [make_pipeline(client, {"voice": hearing.VOICE}) for _ in range(2)]
            first, second = await asyncio.gather(*map(talk, made))
        assert first[2] == second[2] and first[1] and second[1]

    asyncio.run(main())


def test_default_settings_work_with_a_voice_that_follows_no_instructions() -> None:
    async def main() -> None:
        names = {**hearing.models(), "gpt-4o-mini-tts": tiny_speech("soprano")}
        async with AsyncLocalOpenAI(models=names) as client:
            for _ in range(20):  # the tiny voice is random, and may end before its first sound
                try:
                    _, sound, _ = await talk(make_pipeline(client, {}))
                    break
                except openai.InternalServerError as error:
                    if "the model made no sound of this text" not in str(error):
                        raise
        assert sound

    asyncio.run(main())


def test_the_default_voice_is_the_model_s_first_one_and_others_are_errors_that_name_its_voices() -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(models=hearing.models()) as client:
            _, sound, _ = await talk(make_pipeline(client, {}))
            assert sound
            with pytest.raises(openai.BadRequestError, match=r"'bob' is not a voice.*'vivian' and 'ryan'"):
                await talk(make_pipeline(client, {"voice": "bob"}))

    asyncio.run(main())
