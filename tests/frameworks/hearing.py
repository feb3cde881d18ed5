"""Tiny models that hear and speak, next to the bundled one that answers, and a recording for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.endpoints.audio.quiet import terse_whisper
from tests.mlx_audio_models import tiny_speech
from tests.prompt.media.files import wav
from tests.speech_models import sound

VOICE = "ryan"
RATE = 24_000
MAX_BYTES = 60 * 16 * 2
"""Of pcm, for one text: the tiny voice makes at most 60 tokens of 16 samples."""


def models() -> dict[str, Path | None]:
    """Models by the names that frameworks send by default."""
    ears, voice = terse_whisper(), tiny_speech("qwen3_tts")
    return {"whisper-1": ears, "gpt-transcribe": ears, "gpt-4o-mini-tts": voice, "tts-1": voice, "gpt-4o": None}


def samples(rate: int = RATE) -> npt.NDArray[np.int16]:
    """Six seconds of sound, in 16 bits."""
    return (sound(0, rate=rate) * 32767).astype(np.int16)


def recording() -> bytes:
    """The same as a WAV file."""
    return wav(samples(16_000), 16_000)
