"""Sounds as one channel of samples: WAV, MP3 and FLAC through miniaudio."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ...errors import BadRequest
from ...threads.deadline import check
from . import decoding

Samples = npt.NDArray[np.float32]
"""`[samples]`, one channel, -1 to 1; never written to."""

_refuse = BadRequest.refused
MAX_SOUND_SAMPLES = 30 * 60 * 48_000
"""Half an hour at 48 kHz: 345 MB. Models hear at most some minutes of it."""
_LONG_RATE = 48_000
_RATES = (1_000, 768_000)
_MAX_CHANNELS = 32
_CHUNK_SAMPLES = 16_384
_KINDS = (
    (re.compile(rb"(RIFF|RIFX|RF64)....WAVE", re.DOTALL), "wav_get_info"),
    (re.compile(rb"fLaC"), "flac_get_info"),
    (re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"), "mp3_get_info"),
)
"""Beginnings of files, and the names of what reads their heads."""


def is_sound(data: bytes) -> bool:
    """True if a file begins as WAV, MP3 or FLAC do."""
    return any(pattern.match(data) for pattern, _ in _KINDS)


def decode_sound(data: bytes, path: str, seconds: float | None = None) -> tuple[Samples, float]:
    """Decode a sound to one channel, the mean of all, and its samples per second.

    Args:
        data: WAV, MP3 or FLAC, whatever it was called.
        path: the field that it came from.
        seconds: the most that is read, up to 48 kHz; None: `MAX_SOUND_SAMPLES`.

    Raises:
        BadRequest: it is none of these, is broken or empty, or is longer than that.
        Overdue: the caller no longer waits for it.
    """
    if not is_sound(data):
        raise _refuse(path, "the audio is neither WAV nor MP3 nor FLAC" if data else "the audio is empty")
    if data.startswith((b"RIFX", b"RF64")):
        raise _refuse(path, "WAV files of type RIFX and RF64 are not read; save it as RIFF")
    with decoding("audio", path):
        samples, rate = _decoded(data, path, seconds)
    if not len(samples):
        raise _refuse(path, "the audio has no samples")
    samples.flags.writeable = False
    return samples, float(rate)


def _decoded(data: bytes, path: str, seconds: float | None) -> tuple[Samples, int]:
    import miniaudio

    # Writers of streams state lengths of 0 or 2^32 - 1, of which miniaudio knows the second.
    data = data.replace(b"data\0\0\0\0", b"data\xff\xff\xff\xff", 1) if data.startswith(b"RIFF") else data
    info = getattr(miniaudio, next(read for pattern, read in _KINDS if pattern.match(data)))(data)
    channels, rate = info.nchannels, info.sample_rate
    if not 1 <= channels <= _MAX_CHANNELS or not _RATES[0] <= rate <= _RATES[1]:
        raise _refuse(path, f"the audio has {channels} channels of {rate} samples per second, which is not supported")
    stream = miniaudio.stream_memory(data, miniaudio.SampleFormat.FLOAT32, channels, rate, _CHUNK_SAMPLES)
    chunks = [np.zeros(0, np.float32)]
    count, most = 0, MAX_SOUND_SAMPLES if seconds is None else round(seconds * min(rate, _LONG_RATE))
    try:
        for chunk in stream:  # lengths that a header states are not trusted
            check()
            chunks.append(np.frombuffer(chunk, np.float32).reshape(-1, channels).mean(axis=1, dtype=np.float32))
            count += len(chunks[-1])
            if count > most:
                raise _refuse(path, f"the audio has more than {most} samples, the most that is read; cut it")
    finally:
        stream.close()
    samples = np.concatenate(chunks)
    chunks.clear()
    return np.nan_to_num(np.clip(samples, -1, 1, out=samples), copy=False), rate
