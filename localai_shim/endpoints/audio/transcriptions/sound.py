"""The file of a request, as a spectrogram of which a model reads windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from ....errors import BadRequest
from ....media import MediaSpan, ProcessedMedia, media_keys
from ....prompt.media.ffmpeg import decode_foreign, is_foreign_sound
from ....prompt.media.sounds import Samples, decode_sound
from ....threads.deadline import check
from ....types import Adapter, Prompt
from ...files import read_upload
from ...served import ServedModel
from .segments import FRAMES_PER_SECOND

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_SECONDS = 2 * 60 * 60.0
"""Of sound in a file: the spectrogram of two hours has 230 to 370 MB."""
_MAX_BYTES = 2**31


class Listening(Protocol):
    """Part of a Whisper model that makes its input, with NumPy alone; see `ChatTokenizer.model`."""

    def listen(self, samples: Samples, rate: float) -> npt.NDArray[np.float32]:
        """The spectrogram of a whole sound, `[frames, bins]`. Raises: ValueError, if it cannot be made."""

    def window(self, mel: npt.NDArray[np.float32], start: int, frames: int = 3000) -> ProcessedMedia:
        """Frames of a spectrogram as the encoder's input, filled up with silence."""


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """A file that a model has heard."""

    seconds: float
    mel: npt.NDArray[np.float32]
    listening: Listening

    @property
    def frames(self) -> int:
        return len(self.mel)

    def window(self, start: int, frames: int) -> ProcessedMedia:
        """The encoder's input for some frames from a first one on."""
        return self.listening.window(self.mel, start, frames)

    def prompt(
        self,
        tokens: Sequence[int],
        start: int,
        frames: int,
        adapter: Adapter | None = None,
        watched: Sequence[int] | None = None,
    ) -> Prompt:
        """A prompt for one window.

        Args:
            tokens: of the prompt; the first one stands for the window, whatever it is.
            start: the window's first frame.
            frames: how many it has.
            adapter: see `Prompt`.
            watched: tokens whose likelihood after each of `tokens` but the first is wanted; None: none is.
        """
        span = MediaSpan(self.window(start, frames), np.array([0]))
        scored = None if watched is None else 0
        keys = media_keys(tokens, [span])
        return Prompt(tokens, keys=keys, media=[span], adapter=adapter, top_logprobs=scored, watched=watched or ())


def read_samples(value: object, path: str) -> tuple[Samples, float]:
    """Decode an uploaded file: samples, and how many a second has.

    Args:
        value: `file`, as the SDK passes it.
        path: the field.

    Raises:
        BadRequest: it is no sound, or has more than `MAX_SECONDS`.
        Overdue: the caller no longer waits for it.
    """
    _, data = read_upload(value, _MAX_BYTES, "at most 2 GiB are read")
    if is_foreign_sound(data):
        samples, rate = decode_foreign(data, path, MAX_SECONDS)
    else:
        samples, rate = decode_sound(data, path, MAX_SECONDS)
    if len(samples) > MAX_SECONDS * rate:
        raise BadRequest.refused(path, f"the audio has more than {MAX_SECONDS:.0f} seconds; cut it into several files")
    return samples, rate


def hear(value: object, path: str, model: ServedModel) -> Sound:
    """Read an uploaded file for a Whisper model. Takes about a second per hour of speech.

    Raises:
        BadRequest: as `read_samples`, or the sound has none that the model can hear.
        Overdue: the caller no longer waits for it.
    """
    samples, rate = read_samples(value, path)
    listening = cast(Listening, model.tokenizer.model)
    check()
    try:
        mel = listening.listen(samples, rate)
    except ValueError as error:
        raise BadRequest.refused(path, f"the audio cannot be read: {error}") from error
    check()
    return Sound(len(samples) / rate, mel, listening)


def seconds_of(frames: int) -> float:
    """Time at which a frame begins."""
    return frames / FRAMES_PER_SECOND
