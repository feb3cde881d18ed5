"""Small files, made here."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.io import wavfile

SINE = np.sin(np.arange(1_600) * 2 * np.pi * 440 / 16_000)


def png() -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (7, 9), np.uint8)
    Image.fromarray(noise).save(out, "PNG")
    data = out.getvalue()
    return data + bytes(-len(data) % 3) + b"\xfb\xef\xbe\xff"  # so that its base64 has all that there is: ++++/w==


DATA = png()


def wav(samples: npt.NDArray[Any], rate: int = 16_000) -> bytes:
    """As scipy writes it."""
    out = io.BytesIO()
    wavfile.write(out, rate, samples)
    return out.getvalue()


def mp3(frames: int) -> bytes:
    """Silence: MPEG 1 layer III, 128 kbit/s, 44.1 kHz, mono."""
    return (b"\xff\xfb\x90\xc4" + bytes(413)) * frames


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> (bits - 1) else 0)
            value &= (1 << bits) - 1
    return value


def flac(values: list[int], rate: int = 16_000, stated: int | None = None) -> bytes:
    """One frame per value, of 4,096 samples that all have it; `stated`: how many samples the header says there are."""
    count = 4_096 * len(values) if stated is None else stated
    packed = rate << 44 | 0 << 41 | 15 << 36 | count
    data = b"fLaC\x80\x00\x00\x22" + struct.pack(">HH6xQ", 4_096, 4_096, packed) + bytes(16)
    for i, value in enumerate(values):
        head = b"\xff\xf8\xc0\x08" + bytes([i])
        frame = head + bytes([_crc(head, 8, 0x07)]) + b"\x00" + struct.pack(">h", value)
        data += frame + struct.pack(">H", _crc(frame, 16, 0x8005))
    return data
