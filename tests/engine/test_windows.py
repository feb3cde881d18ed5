"""Windows of speech as rows: what they say is what mlx-audio alone makes of them, whatever joins, leaves, or fails."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.ports import Features
from localai_shim.media import ProcessedMedia
from localai_shim.models.speech.whisper import WhisperModel
from localai_shim.types import Prompt, RowError, SamplingParams
from localai_shim.types.work import TranscriptionRequest
from tests.engine.harness import Running, generate
from tests.engine.harness import request as text_request
from tests.speech_models import whisper
from tests.transcribing import (
    engine_for,
    greedy,
    mlx_audio_decode,
    mlx_audio_model,
    opening,
    prompt,
    request,
    window,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine[WhisperModel]]:
    made = engine_for(whisper())
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(engine: Engine[WhisperModel]) -> list[list[int]]:
    """Texts of windows, one after another."""
    return [generate(engine, request(engine.model, number))[0] for number in range(16)]


@pytest.fixture(scope="module")
def theirs(engine: Engine[WhisperModel]) -> Any:
    return mlx_audio_model(engine.model.tokenizer._tokenizer)


def test_greedy_tokens_are_those_of_mlx_audio(
    engine: Engine[WhisperModel], alone: list[list[int]], theirs: Any
) -> None:
    assert len({tuple(text) for text in alone}) > 8  # what is heard matters
    for number in range(4):
        expected = mlx_audio_decode(theirs, window(engine.model, number)).tokens
        assert alone[number][: len(expected)] == expected
        assert len(expected) > 10


def test_model_that_hears_english_only_writes_what_mlx_audio_writes() -> None:
    english = engine_for(whisper("transformers", multilingual=False))
    try:
        model = mlx_audio_model(english.model.tokenizer._tokenizer, multilingual=False)
        for number in range(2):
            expected = mlx_audio_decode(model, window(english.model, number)).tokens
            [text] = generate(english, request(english.model, number))
            assert text[: len(expected)] == expected
    finally:
        english.close()


def test_sixteen_windows_together_say_what_each_says_alone(
    engine: Engine[WhisperModel], alone: list[list[int]]
) -> None:
    steps = engine.stats().steps
    assert generate(engine, *(request(engine.model, number) for number in range(16))) == alone
    assert engine.stats().steps - steps < 8 * 16  # they shared steps


def test_windows_that_join_and_leave_change_no_other(engine: Engine[WhisperModel], alone: list[list[int]]) -> None:
    first = Running(engine, request(engine.model, 0, 40))
    first.read(3)
    short = [Running(engine, request(engine.model, number, number)) for number in range(1, 6)]
    canceled = Running(engine, request(engine.model, 6, 200))
    canceled.read(2)
    canceled.cancel()
    late = Running(engine, request(engine.model, 7))
    assert [run.finish()[0] for run in short] == [alone[number][:number] for number in range(1, 6)]
    assert late.finish() == [alone[7]]
    assert first.finish()[0][:16] == alone[0]


def test_several_rows_of_one_window_share_its_encoder(engine: Engine[WhisperModel]) -> None:
    model, before = engine.model, engine.stats().tower_runs
    settings = model.text.settings
    made = prompt(window(model, 50), opening(settings))
    warm = SamplingParams(temperature=0.8, seed=1, logit_bias=greedy(settings).logit_bias)
    rows = [
        TranscriptionRequest(prompt=made, sampling=sampling, max_tokens=12) for sampling in (greedy(settings), warm)
    ]
    first, second = Running(engine, rows).finish()
    again = generate(engine, request(model, 50, 12))  # later, with another prompt
    assert engine.stats().tower_runs == before + 1
    assert again == [first] != [second]


def test_timestamps_alone_may_follow_the_first_token(engine: Engine[WhisperModel]) -> None:
    """The prompt of an English-only model is one token behind the placeholder."""
    settings = engine.model.text.settings
    made = prompt(window(engine.model, 1), [settings.begin])
    sampling = SamplingParams(temperature=0.0, allowed_token_ids=tuple(settings.languages.values()))
    [[token]] = generate(engine, TranscriptionRequest(prompt=made, sampling=sampling, max_tokens=1))
    assert token in settings.languages.values()


def test_group_of_timestamps_wins_by_its_sum(engine: Engine[WhisperModel], theirs: Any) -> None:
    settings, media = engine.model.text.settings, window(engine.model, 2)
    tokens = opening(settings)[:-1]
    features = theirs.encoder(mx.array(media.inputs["mel"])[None])
    logits = np.array(theirs.logits(mx.array([tokens]), features)[0, -1]).astype(np.float64)
    for start in (settings.first_timestamp, 20_000, 51_800):
        inside = np.exp(logits[start:]).sum() > np.exp(logits[:start]).max()
        expected = start + int(logits[start:].argmax()) if inside else int(logits.argmax())
        sampling = SamplingParams(temperature=0.0, group_from=start)
        made = TranscriptionRequest(prompt=prompt(media, tokens), sampling=sampling, max_tokens=1)
        assert generate(engine, made) == [[expected]]


def test_language_and_silence_are_those_of_mlx_audio(engine: Engine[WhisperModel], theirs: Any) -> None:
    from mlx_audio.stt.models.whisper.decoding import detect_language

    settings = engine.model.text.settings
    assert settings.no_speech is not None
    languages = tuple(settings.languages.values())
    for number in range(3):
        media = window(engine.model, number)
        made = prompt(
            media, [settings.begin, settings.no_speech], top_logprobs=0, watched=(settings.no_speech, *languages)
        )
        generate(engine, TranscriptionRequest(prompt=made, sampling=greedy(settings), max_tokens=1))
        assert made.scores is not None
        silence, *others = made.scores[1].watched
        expected = mlx_audio_decode(theirs, media)
        assert math.exp(silence) == pytest.approx(expected.no_speech_prob, rel=1e-3)
        _, likely = detect_language(theirs, mx.array(media.inputs["mel"]))
        found = np.exp(np.array(others)) / np.exp(np.array(others)).sum()
        assert found == pytest.approx([likely[code] for code in settings.languages], rel=1e-3)


def test_encoder_that_raises_fails_its_window_only(engine: Engine[WhisperModel], alone: list[list[int]]) -> None:
    model = engine.model
    embed, bad = model.embed, window(model, 90).digest

    def failing(media: ProcessedMedia) -> Features:
        if media.digest == bad:
            raise ArithmeticError("the encoder is broken")
        return embed(media)

    model.embed = failing  # type: ignore[method-assign]
    try:
        running = [Running(engine, request(model, number)) for number in (3, 90, 4)]
        assert running[0].finish() == [alone[3]]
        with pytest.raises(RowError, match="the encoder is broken"):
            running[1].finish()
        assert running[2].finish() == [alone[4]]
    finally:
        del model.embed
    assert generate(engine, request(model, 90, 2))  # it is tried again


def test_two_windows_that_fail_at_once_leave_the_third(engine: Engine[WhisperModel], alone: list[list[int]]) -> None:
    model = engine.model
    silent = Prompt([model.text.settings.begin, model.text.settings.begin])
    broken = ProcessedMedia("audio", 77, {"mel": np.full((3000, 80), np.nan, np.float32)}, "", ())
    settings = model.text.settings
    running = [
        Running(engine, TranscriptionRequest(prompt=silent, sampling=greedy(settings), max_tokens=4)),
        Running(
            engine,
            TranscriptionRequest(prompt=prompt(broken, opening(settings)), sampling=greedy(settings), max_tokens=4),
        ),
        Running(engine, request(model, 5)),
    ]
    with pytest.raises(RowError, match="must be the placeholder of its window"):
        running[0].finish()
    with pytest.raises(RowError, match="not finite"):
        running[1].finish()
    assert running[2].finish() == [alone[5]]


def test_text_ends_at_the_decoders_last_position(engine: Engine[WhisperModel]) -> None:
    settings = engine.model.text.settings
    previous = [settings.previous, *([100] * 438), *opening(settings)]
    sampling = SamplingParams(temperature=0.0, logit_bias={settings.end: -math.inf})
    made = TranscriptionRequest(prompt=prompt(window(engine.model, 1), previous), sampling=sampling, max_tokens=100)
    [text] = generate(engine, made)
    assert len(previous) + len(text) == settings.max_tokens


def test_preempted_window_continues_with_the_same_text(alone: list[list[int]]) -> None:
    """With one row at a time, a more urgent window takes the place of one that runs."""
    engine = engine_for(whisper(), EngineOptions(max_rows=1))
    try:
        patient = Running(engine, request(engine.model, 0, 120))
        patient.read(66)
        urgent = Running(engine, request(engine.model, 1, priority=-1))
        assert urgent.finish() == [alone[1]]
        [text] = patient.finish()
        assert text[:16] == alone[0]
        assert engine.stats().preempted >= 1
    finally:
        engine.close()


def test_memory_counts_the_keys_and_values_of_windows(engine: Engine[WhisperModel]) -> None:
    width, layers, numbers = 64, 2, 4
    running = Running(engine, request(engine.model, 0, 60))
    other = Running(engine, request(engine.model, 1, 60))
    running.read(4)
    other.read(4)
    held = engine.stats().kv_bytes
    running.finish()
    other.finish()
    window_bytes = 2 * layers * 1500 * width * numbers
    assert held >= 2 * window_bytes


def test_model_that_transcribes_takes_no_other_work(engine: Engine[WhisperModel]) -> None:
    with pytest.raises(RowError, match="generates no text"):
        Running(engine, text_request([1, 2, 3])).finish()
