"""Whisper's tokenizer, and what makes windows of sounds for it. May be used from any thread; NumPy only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...media import Media, MediaKind, MediaSize, MediaSpan, ProcessedMedia
from ...speech import SAMPLE_RATE, Transcribing
from ...speech.resampling import resampled
from ...types import Json
from ..text import Restore, TextTokenizer, Tools
from .listening import HOP_SAMPLES, WINDOW_FRAMES, Floats, log_mel, window_of

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper


class WhisperText(TextTokenizer):
    """Makes windows of sounds, and token ids of texts.

    Args:
        tokenizer: mlx-lm's `TokenizerWrapper`.
        settings: the model's.
        mels: numbers in a frame.
    """

    media_kinds: frozenset[MediaKind] = frozenset({"audio"})

    def __init__(self, tokenizer: TokenizerWrapper, settings: Transcribing, mels: int) -> None:
        super().__init__(tokenizer, cuts_anywhere=True)
        self.settings, self.n_mels = settings, mels

    def listen(self, samples: Floats, rate: float) -> Floats:
        """Log-mel spectrogram of a whole file, `[frames, n_mels]`: 100 frames per second, at least one.

        Args:
            samples: `[samples]`, one channel, -1 to 1.
            rate: samples per second.

        Raises:
            ValueError: there are no samples, some are no numbers, or the rate is not positive.
        """
        if samples.ndim != 1 or not len(samples):
            raise ValueError("the audio has no samples")
        if not rate > 0 or not np.isfinite(rate):
            raise ValueError(f"the audio has {rate} samples per second: the rate must be positive")
        if not np.isfinite(samples).all():
            raise ValueError("the audio has samples that are not finite numbers")
        return log_mel(resampled(samples, rate, SAMPLE_RATE), self.n_mels)

    def window(self, mel: Floats, start: int, frames: int = WINDOW_FRAMES) -> ProcessedMedia:
        """Thirty seconds of a file, for one row.

        Args:
            mel: the file's, as `listen` makes it.
            start: its first frame.
            frames: those of the file that it has; zeros follow.
        """
        inputs = window_of(mel, start, frames)
        inputs.flags.writeable = False
        digest = int.from_bytes(hashlib.blake2b(inputs.tobytes(), digest_size=8).digest(), "big")
        return ProcessedMedia("audio", (digest >> 1) or 1, {"mel": inputs}, "", ())

    def process(self, media: Media) -> ProcessedMedia:
        if media.kind != "audio":
            raise ValueError("this model hears audio only")
        rate = SAMPLE_RATE if media.rate is None else media.rate
        most = int(rate * WINDOW_FRAMES * HOP_SAMPLES / SAMPLE_RATE)
        return self.window(self.listen(media.data[:most], rate), 0)

    def unread(self, size: MediaSize) -> ProcessedMedia | None:
        return None

    def spans(self, ids: Sequence[int], media: Sequence[ProcessedMedia]) -> list[MediaSpan]:
        """The one item of a prompt, whose placeholder is the first token."""
        return [MediaSpan(each, np.zeros(1, np.int64)) for each in media[:1]]

    def apply_chat_template(
        self,
        messages: list[Json],
        variables: Json,
        tools: Tools = None,
        add_generation_prompt: bool = True,
        restore: Restore = None,
        media: Sequence[ProcessedMedia] = (),
    ) -> list[int]:
        raise ValueError("this model transcribes speech, and has no chat template")
