"""Transcriptions and speech are recorded with real models, and played without them."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import LocalOpenAI, http_client
from localai_shim.endpoints.audio.transcriptions import transcript
from localai_shim.testing import ScriptedOpenAI, scripted, speech, transcription
from localai_shim.testing.cassettes import audio
from localai_shim.testing.cassettes.engine import play_cassette
from tests import speech_models
from tests.mlx_audio_models import sound, tiny_speech
from tests.prompt.media.files import wav

pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # translations, in openai 3.x
FILE, OTHER = wav(speech_models.sound(1, 3)), wav(speech_models.sound(2, 3))
WORDS: Any = {"response_format": "verbose_json", "timestamp_granularities": ["word", "segment"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


@pytest.fixture
def whisper(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOpenAI]:
    """A random model, whose guesses are short, and taken as they are."""
    monkeypatch.setattr(transcript, "TEMPERATURES", (0.0,))
    monkeypatch.setattr(transcript, "LEAST_LOGPROB", -math.inf)
    with LocalOpenAI(str(speech_models.whisper())) as client:
        engine: Any = client._runtime.engine("m")
        engine.wait()
        model = engine.model
        model.settings = {"transcribe": replace(model.settings["transcribe"], max_tokens=64)}
        yield client


def hear(client: Any, file: Any = FILE, **more: Any) -> Any:
    return client.audio.transcriptions.create(**{"model": "m", "file": file, **more})


def speak(client: Any, text: str = "Hello.", **more: Any) -> bytes:
    fields = {"model": "m", "voice": "v", "response_format": "pcm", "input": text, **more}
    content: bytes = client.audio.speech.create(**fields).content
    return content


def test_transcriptions_of_a_real_model_come_again_without_it(whisper: LocalOpenAI, path: Path) -> None:
    def ask(client: Any) -> list[Any]:
        translated = client.audio.translations.create(model="m", file=FILE, response_format="verbose_json")
        return [hear(client), hear(client, include=["logprobs"]), hear(client, **WORDS), translated]

    said = ask(whisper)
    with play_cassette(path, record_mode="once", source=whisper) as client:
        recorded = ask(client)
    with play_cassette(path) as client:
        assert ask(client) == recorded
    for one, other in zip(said, recorded, strict=True):  # the last bits of logprobs may differ between two passes
        assert type(one) is type(other) and one.text == other.text and one.model_fields_set == other.model_fields_set
    assert [each.token for each in recorded[1].logprobs] == [each.token for each in said[1].logprobs] != []
    assert [each.tokens for each in recorded[2].segments] == [each.tokens for each in said[2].segments] != []
    assert recorded[2].words == said[2].words != []


def test_speech_of_a_real_model_comes_again_without_it(path: Path) -> None:
    seeded: Any = {"voice": "ryan", "extra_body": {"seed": 1}}
    with LocalOpenAI(str(tiny_speech("qwen3_tts"))) as source:
        with play_cassette(path, record_mode="once", source=source) as client:
            recorded = speak(client, **seeded)
        assert recorded == speak(source, **seeded) != b""
    with play_cassette(path) as client:
        assert speak(client, **seeded) == recorded


def test_files_are_told_by_their_content(path: Path) -> None:
    with scripted("Hello.") as source, play_cassette(path, record_mode="once", source=source) as client:
        hear(client, ("first.wav", FILE))
    assert FILE[:200].hex() not in path.read_text() and len(path.read_text()) < 1000
    with play_cassette(path) as client:
        assert hear(client, ("second.wav", io.BytesIO(FILE))).text == "Hello."
    with (
        play_cassette(path) as client,
        pytest.raises(openai.BadRequestError, match=r"file\.sha256: recorded '\w+'…, now '\w+'…"),
    ):
        hear(client, OTHER)
    with play_cassette(path) as client, pytest.raises(openai.BadRequestError, match="language: is new: 'de'"):
        hear(client, language="de")


def test_rules_for_texts_do_not_change_a_file_s_hash(path: Path) -> None:
    rules = {r"[0-9a-f]+": "x"}
    with (
        scripted("Hello.") as source,
        play_cassette(path, record_mode="once", source=source, normalize=rules) as client,
    ):
        hear(client)
    with play_cassette(path, normalize=rules) as client, pytest.raises(openai.BadRequestError, match="sha256"):
        hear(client, OTHER)


def test_another_text_or_voice_is_another_request(path: Path) -> None:
    with scripted() as source, play_cassette(path, record_mode="once", source=source) as client:
        speak(client)
    with play_cassette(path) as client, pytest.raises(openai.BadRequestError) as raised:
        speak(client, "Good bye.", voice="w")
    assert "input: recorded 'Hello.', now 'Good bye.'" in str(raised.value)
    assert "voice: recorded 'v', now 'w'" in str(raised.value)


def test_one_recording_is_played_in_each_format_that_it_has(path: Path) -> None:
    with (
        scripted(transcription((0, 1, "Hi."), (1, 2, "You there.")), "One two.") as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        hear(client, response_format="srt")
        hear(client)
        spoken = speak(client)
    with play_cassette(path) as client:
        assert hear(client, response_format="vtt").endswith("00:00:01.000 --> 00:00:02.000\nYou there.\n\n")
        *deltas, done = hear(client, stream=True)
        assert [event.delta for event in deltas] == ["One", " two."] and done.text == "One two."
        file = speak(client, response_format="wav")
        assert file.startswith(b"RIFF") and file.endswith(spoken)


def test_the_sdk_s_own_client_is_recorded_through_its_own_encoder(path: Path) -> None:
    with ScriptedOpenAI().script(transcription((0, 1, "Hi."))) as local:
        source = openai.OpenAI(api_key="x", http_client=http_client(engine=local.stage))
        with play_cassette(path, record_mode="once", source=source) as client:
            hear(client, **WORDS)
            said = speak(client)
        assert local.calls[0].body["timestamp_granularities"] == ["word", "segment"]
    with play_cassette(path) as client:
        assert hear(client, **WORDS).words[0].word == "Hi" and speak(client) == said


def test_what_cannot_be_recorded_is_an_error_that_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "MAX_SPEECH_SECONDS", 1)
    with (
        scripted(speech(np.zeros(30_000, np.float32))) as source,
        play_cassette(path, record_mode="once", source=source) as client,
        pytest.raises(openai.BadRequestError, match="speech of 1 s cannot be recorded: at most 1 s can"),
    ):
        speak(client)
    reader, writer = os.pipe()
    with open(writer, "wb") as target, open(reader, "rb") as source_file:
        target.write(wav(np.zeros(800, np.int16)))
        target.close()
        with play_cassette(path) as client, pytest.raises(openai.BadRequestError, match="can be read once only"):
            hear(client, ("a.wav", source_file))


def test_a_failure_of_the_source_is_not_recorded(path: Path) -> None:
    with (
        LocalOpenAI(str(tiny_speech("moonshine"))) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        with pytest.raises(openai.BadRequestError, match="Whisper models do"):
            hear(client, include=["logprobs"])
        hear(client, wav(sound(1)))
    assert [json.loads(line)["api"] for line in path.read_text().splitlines() if "request" in json.loads(line)] == [
        "audio.transcriptions"
    ]
