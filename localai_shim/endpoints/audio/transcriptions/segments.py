"""Segments of a window: what its tokens say, from when to when, and where the next window begins."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ....speech import Transcribing
from ....types import Token
from .words import TimedWord

FRAMES_PER_SECOND = 100
"""Of a spectrogram."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A window's tokens, at one temperature."""

    tokens: Sequence[Token]
    """Without the end."""
    temperature: float
    average_logprob: float
    """Mean of the tokens' logprobs and the end's, of the model's own distribution."""
    compression_ratio: float

    @classmethod
    def of(cls, tokens: Sequence[Token], temperature: float, text: str, end: int) -> Decoded:
        """Make it of a row's output.

        Args:
            tokens: all of them.
            text: theirs.
            end: the token that ends a window.
        """
        kept = [token for token in tokens if token.id != end]
        total = sum(token.logprob or 0.0 for token in tokens)
        return cls(kept, temperature, total / (len(kept) + 1), compression_ratio(text.strip()))


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of speech."""

    start: float
    """Seconds from the beginning of the file."""
    end: float
    tokens: Sequence[Token]
    """With its timestamps."""
    text: str
    """With the space that it begins with."""
    seek: int
    """Frame at which the window begins that it was heard in."""
    decoded: Decoded
    no_speech: float
    """Probability that the window has no speech."""
    words: Sequence[TimedWord] = ()
    """Words, if their times are wanted."""


def compression_ratio(text: str) -> float:
    """Bytes of a text, divided by those that zlib makes of it: a text that repeats itself has a high one."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def split(tokens: Sequence[int], settings: Transcribing, frames: int) -> tuple[list[tuple[slice, float, float]], int]:
    """Split a window's tokens where one segment ends and the next begins.

    Tokens behind the last closed segment are left out: the next window begins there, and says them again. OpenAI's
    `transcribe` does the same.

    Args:
        tokens: of the window, without the end.
        settings: of the model.
        frames: of sound in the window.

    Returns:
        Place of each segment with its start and end, in seconds of the window, and the frames up to the next window.
    """
    stamped = [token >= settings.first_timestamp for token in tokens]
    cuts = [i for i in range(1, len(tokens)) if stamped[i - 1] and stamped[i]]
    ends_alone = ends_at_stamp(tokens, settings)
    if not cuts:
        length = frames / FRAMES_PER_SECOND
        stamps = [token for token, is_stamp in zip(tokens, stamped, strict=True) if is_stamp]
        if stamps and stamps[-1] != settings.first_timestamp:
            length = _seconds(stamps[-1], settings)
        return [(slice(0, len(tokens)), 0.0, length)], frames
    if ends_alone:
        cuts.append(len(tokens))
    places = [slice(start, stop) for start, stop in zip([0, *cuts], cuts, strict=False)]
    found = [(at, _seconds(tokens[at.start], settings), _seconds(tokens[at.stop - 1], settings)) for at in places]
    spoken = round(found[-1][2] * FRAMES_PER_SECOND)
    return found, frames if ends_alone or not spoken > 0 else spoken


def ends_at_stamp(tokens: Sequence[int], settings: Transcribing) -> bool:
    """True if one timestamp ends a window: the model heard nothing behind it."""
    return [token >= settings.first_timestamp for token in tokens[-2:]] == [False, True]


def _seconds(token: int, settings: Transcribing) -> float:
    """Time of a timestamp, in seconds of its window."""
    return round((token - settings.first_timestamp) * settings.timestamp_seconds, 6)
