"""Times of words by a tiny Whisper model: those of mlx-audio, whatever else the engine does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.endpoints.audio.transcriptions import transcript
from localai_shim.models.speech.alignment import Aligner, alignment_heads
from localai_shim.models.speech.whisper import WhisperModel
from localai_shim.prompt.media.sounds import decode_sound
from tests.conftest import revalidate
from tests.endpoints.audio import oracle
from tests.engine.harness import eventually
from tests.prompt.media.files import wav
from tests.speech_models import sound, whisper

WORDS: dict[str, Any] = {"response_format": "verbose_json", "timestamp_granularities": ["word", "segment"]}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(str(whisper())) as client:
        model = model_of(client)
        model.settings = {"transcribe": replace(model.settings["transcribe"], max_tokens=64)}
        yield client


def model_of(client: LocalOpenAI) -> Any:
    engine: Any = client._runtime.engine("m")
    engine.wait()
    return engine.model


@pytest.fixture(autouse=True)
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model guesses: every text is taken as it is."""
    monkeypatch.setattr(transcript, "TEMPERATURES", (0.0,))
    monkeypatch.setattr(transcript, "LEAST_LOGPROB", -math.inf)


@pytest.mark.parametrize("number", [3])
def test_words_of_a_long_file_have_the_times_of_mlx_audio(
    client: LocalOpenAI, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = sound(number, 47.0)
    made = client.audio.transcriptions.create(model="m", file=wav(samples), language="en", **WORDS)
    revalidate(made)
    settings = model_of(client).settings["transcribe"]
    expected = oracle.transcribe(samples, settings, monkeypatch, words=True)
    segments = [each for each in expected.segments if each["text"].strip() and each["start"] != each["end"]]
    words = [word for each in segments for word in each["words"]]
    assert made.words is not None and len(made.words) == len(words) > 2
    np.testing.assert_allclose([w.start for w in made.words], [w["start"] for w in words], atol=0.011)
    np.testing.assert_allclose([w.end for w in made.words], [w["end"] for w in words], atol=0.011)
    assert made.segments is not None
    assert [each.tokens for each in made.segments] == [each["tokens"] for each in segments]
    assert [each.seek for each in made.segments] == [each["seek"] for each in segments]


@pytest.mark.parametrize(
    ("asked", "words", "segments"), [(["word"], True, False), (["segment"], False, True), (None, False, True)]
)
def test_an_answer_has_the_granularities_that_were_asked_for(
    client: LocalOpenAI, asked: Any, words: bool, segments: bool
) -> None:
    given = {} if asked is None else {"timestamp_granularities": asked}
    made = client.audio.transcriptions.create(
        model="m", file=wav(sound(1, 4.0)), language="en", response_format="verbose_json", **given
    )
    assert (made.words is not None, made.segments is not None) == (words, segments)


def test_files_together_have_the_times_that_each_has_alone(client: LocalOpenAI) -> None:
    files = [wav(sound(number, 3.0)) for number in range(3)]
    alone = [client.audio.transcriptions.create(model="m", file=file, language="en", **WORDS).words for file in files]
    found: list[Any] = [None] * len(files)

    async def main() -> None:
        async with AsyncLocalOpenAI(str(whisper())) as several, anyio.create_task_group() as group:

            async def transcribe(i: int) -> None:
                made = await several.audio.transcriptions.create(model="m", file=files[i], language="en", **WORDS)
                found[i] = made.words

            for i in range(len(files)):
                group.start_soon(transcribe, i)

    anyio.run(main)
    assert found == alone


def test_a_file_whose_words_cannot_be_timed_fails_alone(client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failing = Aligner.begin, [True]

    def begin(self: Aligner, request: Any) -> Iterator[Any]:
        if failing.pop():
            raise ArithmeticError("planted")
        failing.append(False)
        return real(self, request)

    monkeypatch.setattr(Aligner, "begin", begin)
    with pytest.raises(openai.InternalServerError, match=r"aligning words failed: .*planted"):
        client.with_options(max_retries=0).audio.transcriptions.create(
            model="m", file=wav(sound(1, 4.0)), language="en", **WORDS
        )
    failing.append(False)
    made = client.audio.transcriptions.create(model="m", file=wav(sound(1, 4.0)), language="en", **WORDS)
    assert made.words


@pytest.mark.parametrize(
    ("given", "heads"),
    [
        ({"alignment_heads": [[1, 0], [0, 1]]}, [(1, 0), (0, 1)]),
        ({}, [(1, 0), (1, 1)]),
        ({"alignment_heads": [[2, 0]]}, [(1, 0), (1, 1)]),
        ({"alignment_heads": [[0, 0, 1]]}, [(1, 0), (1, 1)]),
        ({"alignment_heads": "all"}, [(1, 0), (1, 1)]),
    ],
)
def test_heads_are_those_that_the_checkpoint_names_or_the_upper_half(given: Any, heads: Any) -> None:
    assert list(alignment_heads(given, 2, 2)) == heads


def test_a_cancel_beside_two_files_that_fail_differently_changes_no_other_file(
    client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder and an alignment raise, each for its own file, while a third file is canceled."""
    files = [wav(sound(number, 2.0)) for number in range(5)]
    alone = [client.audio.transcriptions.create(model="m", file=file, language="en", **WORDS).words for file in files]
    text, encode, begin = model_of(client).text, WhisperModel.embed, Aligner.begin
    first = [text.window(text.listen(*decode_sound(file, "file")), 0).digest for file in files]

    def embed(self: WhisperModel, media: Any) -> Any:
        if media.digest == first[1]:
            raise ArithmeticError("planted in the encoder")
        return encode(self, media)

    def align(self: Aligner, request: Any) -> Iterator[Any]:
        if request.media.digest == first[2]:
            raise ArithmeticError("planted in the alignment")
        return begin(self, request)

    monkeypatch.setattr(WhisperModel, "embed", embed)
    monkeypatch.setattr(Aligner, "begin", align)
    found: dict[int, Any] = {}

    async def main() -> None:
        async with AsyncLocalOpenAI(str(whisper()), max_retries=0) as several, anyio.create_task_group() as group:

            async def transcribe(i: int, scope: anyio.CancelScope) -> None:
                with scope:
                    try:
                        made = await several.audio.transcriptions.create(
                            model="m", file=files[i], language="en", **WORDS
                        )
                        found[i] = made.words
                    except openai.InternalServerError as error:
                        found[i] = error

            scopes = [anyio.CancelScope() for _ in files]
            for i, scope in enumerate(scopes):
                group.start_soon(transcribe, i, scope)
            await anyio.to_thread.run_sync(lambda: eventually(lambda: client.stats().running))
            scopes[3].cancel()

    anyio.run(main)
    assert (found[0], found[4]) == (alone[0], alone[4])
    assert "planted" in str(found[1]) and "planted in the alignment" in str(found[2])
    assert eventually(lambda: client.stats().running == client.stats().waiting == 0)
