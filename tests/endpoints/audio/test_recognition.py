"""Transcriptions by models that are no Whisper: the answers of mlx-audio's own code in OpenAI's forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import mlx.core as mx
import openai
import pytest
from mlx_audio.stt import load

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import revalidate
from tests.mlx_audio_models import sound, tiny_speech
from tests.prompt.media.files import wav

FAMILY = "moonshine"
FILE = wav(sound(2))


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(str(tiny_speech(FAMILY))) as client:
        yield client


@pytest.fixture(scope="module")
def expected() -> str:
    return str(load(str(tiny_speech(FAMILY))).generate(mx.array(sound(2))).text).strip()


def test_answers_have_the_model_s_text_in_each_format(client: LocalOpenAI, expected: str) -> None:
    create: Any = client.audio.transcriptions.create
    made = create(model="m", file=FILE)
    revalidate(made)
    assert made.text == expected != ""
    assert made.usage.to_dict() == {"type": "duration", "seconds": 2.0}
    assert create(model="m", file=FILE, response_format="text") == expected
    assert create(model="m", file=FILE, response_format="srt").startswith("1\n00:00:00,000 --> 00:00:02,000\n")
    assert create(model="m", file=FILE, response_format="vtt").startswith("WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n")
    verbose = create(model="m", file=FILE, response_format="verbose_json")
    revalidate(verbose)
    assert [(each.start, each.end, each.text) for each in verbose.segments] == [(0.0, 2.0, expected)]
    assert (verbose.duration, verbose.text) == (2.0, expected)


def test_fields_that_the_model_does_not_take_have_no_effect_and_are_logged(
    client: LocalOpenAI, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="localai_shim"):
        made = client.audio.transcriptions.create(model="m", file=FILE, language="en", prompt="Ada")
    assert made.text == expected
    [line] = [each for each in caplog.messages if "no effect" in each]
    assert line.endswith("does not take these fields, which have no effect: language, prompt")
    caplog.clear()
    with caplog.at_level("INFO", logger="localai_shim"):
        client.audio.transcriptions.create(model="m", file=FILE)
    assert "no effect" not in caplog.text


def test_a_stream_has_a_delta_for_each_part_and_the_whole_text(client: LocalOpenAI) -> None:
    long = wav(sound(34))
    *deltas, done = client.audio.transcriptions.create(model="m", file=long, stream=True)
    assert [event.type for event in (*deltas, done)] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
    assert "".join(event.delta for event in deltas) == done.text  # type: ignore[union-attr]
    assert client.audio.transcriptions.create(model="m", file=long).text == done.text  # type: ignore[union-attr]


def test_files_of_an_async_client_get_their_own_text(client: LocalOpenAI) -> None:
    files = [wav(sound(1, seed)) for seed in range(4)]
    alone = [client.audio.transcriptions.create(model="m", file=file).text for file in files]
    found = [""] * len(files)

    async def main() -> None:
        async with AsyncLocalOpenAI(str(tiny_speech(FAMILY))) as several, anyio.create_task_group() as group:

            async def transcribe(i: int) -> None:
                found[i] = (await several.audio.transcriptions.create(model="m", file=files[i])).text

            for i in range(len(files)):
                group.start_soon(transcribe, i)

    anyio.run(main)
    assert found == alone and len({*found}) > 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"include": ["logprobs"]}, "include"),
        ({"response_format": "verbose_json", "timestamp_granularities": ["word"]}, "timestamp_granularities"),
    ],
)
def test_what_only_whisper_does_is_refused(client: LocalOpenAI, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError, match="Whisper models do") as raised:
        client.audio.transcriptions.create(model="m", file=FILE, **fields)
    assert raised.value.param == param


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
def test_a_translation_is_refused(client: LocalOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"cannot translate\. Load a multilingual Whisper model"):
        client.audio.translations.create(model="m", file=FILE)


def test_a_file_that_is_no_sound_is_refused(client: LocalOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="Invalid 'file'"):
        client.audio.transcriptions.create(model="m", file=b"no sound")
