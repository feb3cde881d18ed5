"""Whisper's tokens and windows, as endpoints get them."""

from __future__ import annotations

import numpy as np
import pytest

from localai_shim.media import Media
from localai_shim.models.speech.reading import read_whisper
from localai_shim.models.speech.settings import transcribing
from localai_shim.models.speech.text import WhisperText
from localai_shim.types import ModelLoadError
from tests.speech_models import VOCABULARY, sound, whisper


def text_of(*, multilingual: bool = True) -> WhisperText:
    _, tokenizer, _ = read_whisper(whisper(multilingual=multilingual))
    known = tokenizer._tokenizer.get_vocab()
    settings = transcribing(known, lambda text: encode(tokenizer, text), VOCABULARY[multilingual], 448, {})
    return WhisperText(tokenizer, settings, 80)


def encode(tokenizer: object, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)  # type: ignore[attr-defined]
    return ids


def test_special_tokens_have_the_ids_that_openai_gave_them() -> None:
    settings = text_of().settings
    assert (settings.end, settings.begin, settings.no_timestamps) == (50257, 50258, 50363)
    assert (settings.first_timestamp, settings.last_timestamp) == (50364, 51864)
    assert (settings.translate, settings.transcribe) == (50358, 50359)
    assert (settings.previous, settings.no_speech) == (50361, 50362)
    assert list(settings.languages)[:3] == ["en", "zh", "de"]
    assert settings.languages["en"] == 50259
    assert len(settings.languages) == 99


def test_model_that_hears_english_only_has_neither_languages_nor_tasks() -> None:
    settings = text_of(multilingual=False).settings
    assert (settings.end, settings.begin, settings.first_timestamp) == (50256, 50257, 50363)
    assert settings.languages == {}
    assert settings.transcribe is settings.translate is None


def test_suppressed_tokens_are_those_of_mlx_audio() -> None:
    from mlx_audio.stt.models.whisper.decoding import get_suppress_tokens
    from mlx_audio.stt.models.whisper.whisper import HFTokenizerWrapper

    text = text_of()
    assert text.settings.suppressed == get_suppress_tokens(HFTokenizerWrapper(text.tokenizer._tokenizer))


def test_tokenizer_without_timestamps_serves_as_well() -> None:
    _, tokenizer, _ = read_whisper(whisper())
    known = {token: i for token, i in tokenizer._tokenizer.get_vocab().items() if i < 50364}
    settings = transcribing(known, lambda text: encode(tokenizer, text), 51_865, 448, {})
    assert settings.first_timestamp == 50364


@pytest.mark.parametrize("lost", ["<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>", "<|startofprev|>"])
def test_tokenizer_of_another_model_is_refused_with_the_token(lost: str) -> None:
    _, tokenizer, _ = read_whisper(whisper())
    known = {token: i for token, i in tokenizer._tokenizer.get_vocab().items() if token != lost}
    with pytest.raises(ModelLoadError, match=lost.strip("<|>")):
        transcribing(known, lambda text: encode(tokenizer, text), 51_865, 448, {})


def test_vocabulary_without_room_for_timestamps_is_refused() -> None:
    _, tokenizer, _ = read_whisper(whisper())
    with pytest.raises(ModelLoadError, match="no room for 1501 timestamps"):
        transcribing(tokenizer._tokenizer.get_vocab(), lambda text: encode(tokenizer, text), 51_864, 448, {})


def test_windows_with_the_same_sound_have_the_same_digest() -> None:
    text = text_of()
    mel = text.listen(sound(1, 2.0), 16_000)
    first, again, later = text.window(mel, 0), text.window(mel.copy(), 0), text.window(mel, 1)
    assert first.digest == again.digest != later.digest
    assert 0 < first.digest < 2**63
    assert first.inputs["mel"].shape == (3000, 80)
    assert not first.inputs["mel"].flags.writeable


def test_first_thirty_seconds_of_a_sound_are_processed() -> None:
    text = text_of()
    whole = sound(1, 31.0)
    made = text.process(Media("audio", whole, "file", rate=16_000))
    assert made.digest == text.window(text.listen(whole[: 30 * 16_000], 16_000), 0).digest
    with pytest.raises(ValueError, match="audio only"):
        text.process(Media("image", np.zeros((2, 2, 3), np.uint8), "file"))


@pytest.mark.parametrize(
    ("samples", "rate", "why"),
    [
        (np.zeros(0, np.float32), 16_000, "no samples"),
        (np.zeros((2, 2), np.float32), 16_000, "no samples"),
        (np.zeros(9, np.float32), 0, "must be positive"),
        (np.zeros(9, np.float32), float("nan"), "must be positive"),
        (np.array([0.0, np.inf], np.float32), 16_000, "not finite"),
    ],
)
def test_sound_that_cannot_be_heard_is_refused_with_a_reason(samples: np.ndarray, rate: float, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        text_of().listen(samples, rate)
