"""What frameworks send to hear and to speak: arguments of the SDK as they were recorded, each with default settings.

openai-agents 0.24.0 (`VoicePipeline`), langchain-community 0.4.2 (`OpenAIWhisperParser`), LiteLLM 1.110.2
(`transcription`, `speech`), and llama-index-readers-whisper 0.5.0 (`WhisperReader`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from tests.frameworks import hearing
from tests.mlx_audio_models import tiny_speech

READ_ALOUD = "You will receive partial sentences. Do not complete the sentence{} just read out the text."


def named(name: str) -> io.BytesIO:
    file = io.BytesIO(hearing.recording())
    file.name = name
    file.read()  # it is at its end
    return file


HEARS: dict[str, dict[str, Any]] = {
    "openai-agents": {
        "model": "gpt-transcribe",
        "file": ("audio.wav", io.BytesIO(hearing.recording()), "audio/wav"),
        "prompt": None,
        "language": openai.omit,
        "extra_body": None,
        "temperature": openai.omit,
    },
    "openai-agents, a language": {
        "model": "gpt-transcribe",
        "file": ("audio.wav", io.BytesIO(hearing.recording()), "audio/wav"),
        "prompt": "Ryan",
        "extra_body": {"languages": ["en"]},
    },
    "langchain": {"model": "whisper-1", "file": named("/tmp/a.wav_part_0.mp3")},
    "litellm": {"model": "whisper-1", "file": ("a.wav", hearing.recording()), "response_format": "verbose_json"},
    "llama-index": {
        "model": "whisper-1",
        "file": named("audio.mp3"),
        "language": "en",
        "response_format": "text",
        "prompt": None,
    },
}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(models={**hearing.models(), "soprano": tiny_speech("soprano")}) as made:
        yield made


@pytest.mark.parametrize("name", HEARS)
def test_a_recording_is_transcribed(client: LocalOpenAI, name: str) -> None:
    made: Any = client.audio.transcriptions.create(**HEARS[name])
    assert (made if isinstance(made, str) else made.text).strip()


@pytest.mark.parametrize("comma", ["", ","])
@pytest.mark.parametrize(("model", "voice"), [("gpt-4o-mini-tts", hearing.VOICE), ("soprano", "ash")])
def test_openai_agents_default_instructions_do_for_each_voice(
    client: LocalOpenAI, model: str, voice: str, comma: str
) -> None:
    create = client.audio.speech.with_streaming_response.create
    extra: Any = {"instructions": READ_ALOUD.format(comma)}
    with create(model=model, voice=voice, input="Hi there.", response_format="pcm", extra_body=extra) as response:
        assert b"".join(response.iter_bytes(chunk_size=1024))


def test_a_model_that_follows_no_instructions_refuses_all_others(client: LocalOpenAI) -> None:
    says = READ_ALOUD.format("") + " Whisper."
    with pytest.raises(openai.BadRequestError, match="does not follow instructions") as caught:
        client.audio.speech.create(model="soprano", voice="ash", input="Hi.", response_format="pcm", instructions=says)
    assert caught.value.param == "instructions"
