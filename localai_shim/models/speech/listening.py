"""Sounds as Whisper hears them: log-mel spectrograms at 16 kHz, as OpenAI's `transcribe` makes them. NumPy only."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from ...speech import SAMPLE_RATE

Floats = npt.NDArray[np.float32]

HOP_SAMPLES = 160
"""Samples at 16 kHz from one frame to the next."""
WINDOW_FRAMES = 3000
"""Frames of thirty seconds: what the encoder reads at once."""
FFT_SAMPLES = 400
CHUNK_FRAMES = 4096  # transformed at once: 30 minutes in one piece would take 600 MB
LOG_RANGE = 8.0  # powers of ten below the loudest number that are kept
LEAST_POWER = 1e-10


def log_mel(samples: Floats, mels: int) -> Floats:
    """Log-mel spectrogram of a whole file, `[frames, mels]`: a frame for each 10 ms, at least one.

    As in OpenAI's `transcribe`, thirty seconds of silence follow the file and are cut off again, and the numbers are
    relative to the loudest one of the file.

    Args:
        samples: at 16 kHz.
        mels: 80, or 128 for large-v3.
    """
    frames = max(1, len(samples) // HOP_SAMPLES)
    padded = np.pad(samples, (0, WINDOW_FRAMES * HOP_SAMPLES))
    padded = np.pad(padded, FFT_SAMPLES // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FFT_SAMPLES)[::HOP_SAMPLES]
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT_SAMPLES) / FFT_SAMPLES)).astype(np.float32)
    filters, whole = mel_filters(mels).T, len(windows) - 1
    out = np.empty((whole, mels), np.float32)
    for start in range(0, whole, CHUNK_FRAMES):
        spectrum = np.fft.rfft(windows[start : min(start + CHUNK_FRAMES, whole)] * hann)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
        out[start : start + CHUNK_FRAMES] = power @ filters
    np.log10(np.maximum(out, np.float32(LEAST_POWER)), out=out)
    np.maximum(out, out.max() - np.float32(LOG_RANGE), out=out)
    out += 4
    out /= 4
    return out[:frames]


def window_of(mel: Floats, start: int, frames: int = WINDOW_FRAMES) -> Floats:
    """Frames of a file's spectrogram, filled up with zeros to thirty seconds: `[3000, mels]`."""
    out = np.zeros((WINDOW_FRAMES, mel.shape[1]), np.float32)
    part = mel[start : start + min(frames, WINDOW_FRAMES)]
    out[: len(part)] = part
    return out


@functools.lru_cache(maxsize=4)
def mel_filters(mels: int) -> Floats:
    """Triangular filters on Slaney's scale with areas of 1, `[mels, frequencies]`, as librosa makes them."""
    frequencies = np.linspace(0, SAMPLE_RATE / 2, FFT_SAMPLES // 2 + 1)
    points = _hertz(np.linspace(0, _mel(SAMPLE_RATE / 2), mels + 2))
    distance = points[:, None] - frequencies[None]
    widths = np.diff(points)
    rising, falling = -distance[:-2] / widths[:-1, None], distance[2:] / widths[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(triangles * (2 / (points[2:] - points[:-2]))[:, None], np.float32)


_LINEAR_HERTZ, _LINEAR_MELS = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27.0


def _mel(hertz: float) -> float:
    if hertz < _LINEAR_HERTZ:
        return hertz * _LINEAR_MELS / _LINEAR_HERTZ
    return _LINEAR_MELS + float(np.log(hertz / _LINEAR_HERTZ)) / float(_LOG_STEP)


def _hertz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    above = _LINEAR_HERTZ * np.exp(_LOG_STEP * (mels - _LINEAR_MELS))
    return np.where(mels < _LINEAR_MELS, mels * _LINEAR_HERTZ / _LINEAR_MELS, above)
