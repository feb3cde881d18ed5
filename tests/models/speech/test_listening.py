"""Sounds as Whisper hears them: the spectrograms of mlx-audio and transformers, and pure tones at other rates."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.models.speech.listening import WINDOW_FRAMES, log_mel, window_of
from localai_shim.speech.resampling import resampled
from tests.speech_models import sound


@pytest.mark.parametrize("mels", [80, 128])
def test_spectrogram_is_that_of_mlx_audio(mels: int) -> None:
    from mlx_audio.stt.models.whisper.audio import N_SAMPLES, log_mel_spectrogram

    samples = sound(1, 7.3)
    theirs = np.array(log_mel_spectrogram(mx.array(samples), mels, padding=N_SAMPLES))[:730]
    assert np.abs(log_mel(samples, mels) - theirs).max() < 5e-4  # its filters are made in float32


@pytest.mark.parametrize("mels", [80, 128])
def test_spectrogram_is_that_of_transformers(mels: int) -> None:
    from transformers import WhisperFeatureExtractor

    samples = sound(2, 5.0)
    theirs = WhisperFeatureExtractor(feature_size=mels)(samples, sampling_rate=16_000)["input_features"][0].T[:500]
    assert np.abs(log_mel(samples, mels) - theirs).max() < 1e-5


def test_long_file_is_transformed_in_pieces_without_a_seam() -> None:
    samples = sound(3, 50.0)
    whole = log_mel(samples, 80)
    assert whole.shape == (5000, 80)
    behind = log_mel(samples[30 * 16_000 :], 80)
    quiet = np.abs(whole[3010:4990] - behind[10:1990])  # the loudest number of each may differ
    assert np.median(quiet) < 1e-3


@pytest.mark.parametrize("samples", [1, 159, 160, 201])
def test_shortest_sounds_have_one_frame(samples: int) -> None:
    made = log_mel(np.full(samples, 0.1, np.float32), 80)
    assert made.shape == (1, 80)
    assert np.isfinite(made).all()


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_tones_keep_their_place_and_size_at_another_rate(rate: int) -> None:
    tones = [200.0, 1000.3, 3000.7]
    given, wanted = (np.arange(int(each * 2)) / each for each in (rate, 16_000))
    made = resampled(np.asarray(sum(np.sin(2 * np.pi * hz * given + hz) for hz in tones), np.float32), rate, 16_000)
    expected = sum(np.sin(2 * np.pi * hz * wanted + hz) for hz in tones)
    assert len(made) == 32_000
    error = (made - expected)[800:-800]
    assert np.sqrt(np.mean(error**2)) < 1e-4 * np.sqrt(np.mean(expected**2))


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000])
def test_what_the_lower_rate_cannot_hold_is_left_out(rate: int) -> None:
    tone = np.sin(2 * np.pi * 9_500 * np.arange(rate) / rate).astype(np.float32)
    assert np.abs(resampled(tone, rate, 16_000)[800:-800]).max() < 1e-4


def test_window_is_filled_up_with_zeros_and_cut_at_thirty_seconds() -> None:
    mel = np.ones((3500, 80), np.float32)
    assert window_of(mel, 0).shape == (WINDOW_FRAMES, 80)
    assert window_of(mel, 3000).sum() == 500 * 80
    assert window_of(mel, 100, 7)[:8].sum(axis=1).tolist() == [80.0] * 7 + [0.0]
    assert window_of(mel, 4000).sum() == 0
