"""Sounds as one channel of samples: WAV by ourselves, MP3 and FLAC through miniaudio."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...errors import BadRequest

Samples = npt.NDArray[np.float32]
"""`[samples]`, one channel, -1 to 1; nobody writes to it."""

MAX_SOUND_SAMPLES = 30 * 60 * 48_000
"""Half an hour at 48 kHz: 345 MB. Models hear at most some minutes of it."""
_RATES = (1_000, 768_000)
_MAX_CHANNELS = 32
_CHUNK_SAMPLES = 16_384
_WAV = re.compile(rb"(RIFF|RIFX|RF64)....WAVE", re.DOTALL)
_FLAC = re.compile(rb"fLaC")
_MP3 = re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]")
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_WAV_TYPES = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "<i4",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}
"""NumPy's names of samples by the format's number and bits; those of 24 bits are padded."""


def is_sound(data: bytes) -> bool:
    """True if a file begins as WAV, MP3 or FLAC do."""
    return any(pattern.match(data) for pattern in (_WAV, _FLAC, _MP3))


def decode_sound(data: bytes, path: str) -> tuple[Samples, float]:
    """Decode a sound to one channel, the mean of all, and its samples per second.

    Args:
        data: WAV, MP3 or FLAC, whatever it was called.
        path: the field that it came from.

    Raises:
        BadRequest: it is none of these, is broken or empty, or has more than `MAX_SOUND_SAMPLES`; or miniaudio is
            missing.
    """
    if not is_sound(data):
        raise _refuse(path, "the audio is neither WAV nor MP3 nor FLAC" if data else "the audio is empty")
    try:
        samples, rate = _decode_wav(data, path) if _WAV.match(data) else _decode_others(data, path)
    except BadRequest:
        raise
    except Exception as error:  # whatever broken files lead to
        raise _refuse(path, f"the audio cannot be decoded: {str(error)[:200] or type(error).__name__}") from None
    if not len(samples):
        raise _refuse(path, "the audio has no samples")
    samples.flags.writeable = False
    return samples, float(rate)


def _decode_wav(data: bytes, path: str) -> tuple[Samples, int]:
    if not data.startswith(b"RIFF"):
        raise _refuse(path, "WAV files of type RIFX and RF64 are not read; save it as RIFF")
    chunks = dict(_chunks(data))
    kind, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", chunks[b"fmt "])
    if kind == _EXTENSIBLE:
        kind = struct.unpack_from("<H", chunks[b"fmt "], 24)[0]
    _check(channels, rate, path)
    body = chunks[b"data"]
    if block != channels * bits // 8 or (kind, bits) not in _WAV_TYPES:
        raise _refuse(path, f"WAV of format {kind} with {bits} bits is not read; save it as PCM of 16 bits")
    count = len(body) // block
    if count > MAX_SOUND_SAMPLES:
        raise _too_long(path)
    samples = _wav_samples(kind, bits, body[: count * block]).reshape(count, channels).mean(axis=1, dtype=np.float32)
    return np.nan_to_num(samples.clip(-1, 1)), rate


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Of a RIFF file. Writers of streams leave lengths of 0 or 2^32 - 1: the last chunk is what there is."""
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        if name == b"data" and length == 0:
            length = len(data)
        yield name, data[at + 8 : at + 8 + length]
        if name == b"data":
            return
        at += 8 + length + length % 2


def _wav_samples(kind: int, bits: int, body: bytes) -> Samples:
    if bits == 24:
        places = np.zeros((len(body) // 3, 4), np.uint8)
        places[:, 1:] = np.frombuffer(body, np.uint8).reshape(-1, 3)
        body, bits = places.tobytes(), 32
    samples = np.frombuffer(body, _WAV_TYPES[kind, bits]).astype(np.float32)
    if kind == _FLOAT:
        return samples
    return (samples - np.float32(128 if bits == 8 else 0)) / np.float32(2 ** (bits - 1))


def _decode_others(data: bytes, path: str) -> tuple[Samples, int]:
    try:
        import miniaudio
    except ImportError:
        raise _refuse(path, "MP3 and FLAC need the package miniaudio ('pip install miniaudio'); WAV does not") from None
    info = (miniaudio.flac_get_info if _FLAC.match(data) else miniaudio.mp3_get_info)(data)
    _check(info.nchannels, info.sample_rate, path)
    stream = miniaudio.stream_memory(data, miniaudio.SampleFormat.FLOAT32, 1, info.sample_rate, _CHUNK_SAMPLES)
    chunks: list[Samples] = []
    count = 0
    try:
        for chunk in stream:  # lengths that a header states are not trusted
            chunks.append(np.frombuffer(chunk, np.float32))
            count += len(chunk)
            if count > MAX_SOUND_SAMPLES:
                raise _too_long(path)
    finally:
        stream.close()
    samples = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
    return np.nan_to_num(samples.clip(-1, 1)), info.sample_rate


def _check(channels: int, rate: int, path: str) -> None:
    if not 1 <= channels <= _MAX_CHANNELS or not _RATES[0] <= rate <= _RATES[1]:
        raise _refuse(path, f"the audio has {channels} channels of {rate} samples per second, which is not supported")


def _too_long(path: str) -> BadRequest:
    return _refuse(path, f"the audio has more than {MAX_SOUND_SAMPLES} samples, the most that is read; cut it")


def _refuse(path: str, why: str) -> BadRequest:
    return BadRequest.invalid(path, f"Invalid '{path}': {why}.")
