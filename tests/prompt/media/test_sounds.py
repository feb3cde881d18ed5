"""Sounds come out as one channel of float32 at their own rate, or as a 400 that says why not."""

from __future__ import annotations

import base64
import io
import struct
import wave
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from localai_shim.errors import BadRequest
from localai_shim.media import MediaRules
from localai_shim.prompt.media import sounds
from localai_shim.prompt.media.parts import open_media
from localai_shim.prompt.media.sounds import decode_sound
from tests.prompt.media.files import SINE, flac, mp3, wav

PATH = "messages[0].content[0].input_audio.data"


def refusal(data: bytes) -> str:
    with pytest.raises(BadRequest) as caught:
        decode_sound(data, PATH)
    assert caught.value.param == PATH
    return caught.value.message


def wav_of_24_bits(values: list[int]) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(3)
        file.setframerate(8_000)
        file.writeframes(b"".join(value.to_bytes(3, "little", signed=True) for value in values))
    return out.getvalue()


@pytest.mark.parametrize(
    ("samples", "close"),
    [
        ((SINE * 127 + 128).astype(np.uint8), 2e-2),
        ((SINE * 32_767).astype(np.int16), 1e-4),
        ((SINE * 2_147_483_647).astype(np.int32), 1e-6),
        (SINE.astype(np.float32), 1e-7),
        (SINE, 1e-7),
    ],
)
def test_wav(samples: npt.NDArray[Any], close: float) -> None:
    found, rate = decode_sound(wav(samples), PATH)
    assert (found.dtype, rate) == (np.float32, 16_000.0)
    assert not found.flags.writeable
    assert np.abs(found - SINE).max() < close


def test_wav_of_24_bits() -> None:
    found, rate = decode_sound(wav_of_24_bits([0, 1 << 22, -(1 << 23)]), PATH)
    assert rate == 8_000
    assert found.tolist() == [0.0, 0.5, -1.0]


def test_channels_become_their_mean() -> None:
    found, _ = decode_sound(wav(np.array([[0.5, 0.25], [-1, 1]], np.float32)), PATH)
    assert found.tolist() == [0.375, 0.0]


def test_what_is_louder_than_full_is_clipped_and_what_is_no_number_is_silent() -> None:
    found, _ = decode_sound(wav(np.array([3, -3, np.nan, np.inf], np.float32)), PATH)
    assert found.tolist() == [1.0, -1.0, 0.0, 1.0]


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF])
def test_wav_of_a_stream_states_no_length(length: int) -> None:
    data = bytearray(wav((SINE * 32_767).astype(np.int16)))
    struct.pack_into("<I", data, data.index(b"data") + 4, length)
    assert len(decode_sound(bytes(data), PATH)[0]) == len(SINE)


def test_extensible_wav() -> None:
    plain = wav((SINE * 32_767).astype(np.int16))
    body = plain[plain.index(b"data") :]
    head = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16_000, 32_000, 2, 16, 22, 16, 4)
    guid = b"\x01\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    data = b"RIFF\x00\x00\x00\x00WAVEfmt " + struct.pack("<I", 40) + head + guid + b"LIST\x03\x00\x00\x00abc\x00" + body
    assert np.abs(decode_sound(data, PATH)[0] - SINE).max() < 1e-4


def test_mp3() -> None:
    found, rate = decode_sound(mp3(10), PATH)
    assert (len(found), rate) == (11_520, 44_100.0)
    assert not found.any()


@pytest.mark.parametrize("stated", [None, 0])
def test_flac(stated: int | None) -> None:
    found, rate = decode_sound(flac([16_384, -32_768], stated=stated), PATH)
    assert rate == 16_000
    assert (found == np.repeat(np.float32([0.5, -1.0]), 4_096)).all()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"OggS" + bytes(50), "neither WAV nor MP3 nor FLAC"),
        (wav(SINE)[:30], "cannot be decoded"),
        (wav(SINE[:0]), "no samples"),
        (b"RIFX" + wav(SINE)[4:], "RIFX"),
        (wav(SINE[:, None].repeat(40, axis=1)), "40 channels"),
        (wav(SINE, rate=2), "2 samples per second"),
        (wav(SINE).replace(b"\x03\x00\x01\x00", b"\x11\x00\x01\x00"), "cannot be decoded"),
        (b"ID3" + bytes(500), "cannot be decoded"),
        (b"fLaC" + bytes(500), "cannot be decoded"),
    ],
)
def test_what_is_no_sound_is_named(data: bytes, says: str) -> None:
    assert says in refusal(data)


@pytest.mark.parametrize("data", [wav(SINE), mp3(2), flac([1], stated=1), flac([1], stated=0)])
def test_too_many_samples(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sounds, "MAX_SOUND_SAMPLES", 1_000)
    assert "at most" in refusal(data) or "the most" in refusal(data)


@pytest.mark.parametrize("prefix", ["", "data:audio/wav;base64,", "data:audio/mpeg;base64,"])
@pytest.mark.parametrize("data", [wav(SINE), mp3(2), flac([1])])
def test_parts(prefix: str, data: bytes) -> None:
    content = {"data": prefix + base64.b64encode(data).decode(), "format": "wav"}
    for value in (content, {"data": data, "format": "mp3"}):
        part = {"type": "input_audio", "input_audio": value}
        media = open_media(part, "messages[0].content[0]", MediaRules()).decode()
        assert (media.kind, media.path) == ("audio", PATH)
        assert media.rate == decode_sound(data, PATH)[1]


def test_base64_that_is_no_sound_is_said_to_be_none() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "T2dnUwAAAAA=", "format": "wav"}}
    with pytest.raises(BadRequest, match="neither WAV nor MP3 nor FLAC") as caught:
        open_media(part, "messages[0].content[0]", MediaRules()).decode()
    assert caught.value.param == PATH
