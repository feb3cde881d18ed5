"""Replies for scripts: segments of a file, and speech."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BadRequest
from ...speech import HeardSegment
from ..answers import Answer
from ..model.sounds import SPEECH_RATE, Heard, Sound

if TYPE_CHECKING:
    import numpy.typing as npt

TimedText = tuple[float, float, str]
"""Start and end in seconds, and the text between them."""


def transcription(*segments: str | TimedText, language: str | None = None) -> Answer:
    """Answer for `client.audio.transcriptions` and `.translations`: the segments of a file.

    A plain text in a script answers them as well, as one segment.

    Args:
        *segments: Texts, which share the length of the file by their characters, or `(start, end, text)` with seconds.
        language: Name of the language in `verbose_json`. Defaults to the request's language, or English.

    Raises:
        ValueError: Segments have no text, or their times do not ascend.

    Example:
        >>> import io, wave
        >>> from localai_shim.testing import scripted, transcription
        >>> file = io.BytesIO()
        >>> with wave.open(file, "wb") as sound:
        ...     sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        ...     sound.writeframes(bytes(2 * 16_000 * 3))
        >>> with scripted(transcription((0, 1, "Hello."), (1, 2.5, "It rains."))) as client:
        ...     print(client.audio.transcriptions.create(model="whisper-1", file=file, response_format="srt"))
        1
        00:00:00,000 --> 00:00:01,000
        Hello.
        <BLANKLINE>
        2
        00:00:01,000 --> 00:00:02,500
        It rains.
        <BLANKLINE>
        <BLANKLINE>
    """
    texts = [each.strip() for each in segments if isinstance(each, str)]
    if texts and len(texts) < len(segments):
        raise ValueError(f"pass times for all segments, or for none, not {segments!r}")
    timed = [HeardSegment(float(each[0]), float(each[1]), each[2].strip()) for each in segments if type(each) is tuple]
    if not all(texts) or not all(each.text for each in timed):
        raise ValueError(f"each segment needs a text; leave the others out: {segments!r}")
    times = [time for each in timed for time in (each.start, each.end)]
    if times != sorted(times) or (times and not 0 <= times[0] <= times[-1] < float("inf")):
        raise ValueError(f"times must ascend from 0 on, not {times}")
    text = " ".join(texts or [each.text for each in timed])
    return Answer((text,), heard=Heard(tuple(timed), tuple(texts), language))


def speech(sound: bytes | npt.ArrayLike, rate: int = SPEECH_RATE) -> Answer:
    """Answer for `client.audio.speech`; without one, requests get a tone.

    Args:
        sound: Samples from -1 to 1, one channel; or the content of a WAV, MP3, or FLAC file.
        rate: Samples per second. Files say their own.

    Raises:
        ValueError: It is no sound, or it is empty.

    Example:
        >>> from localai_shim.testing import scripted, speech
        >>> with scripted(speech([0.0, 0.5, -0.5, 0.0])) as client:
        ...     answer = client.audio.speech.create(model="any", voice="any", input="Hi", response_format="pcm")
        >>> len(answer.content)  # two bytes per sample
        8
    """
    import numpy as np

    if isinstance(sound, bytes):
        from ...endpoints.audio.transcriptions.sound import read_samples

        try:
            samples, given = read_samples(sound, "sound")
        except BadRequest as error:
            raise ValueError(str(error)) from error
        rate = round(given)
    else:
        samples = np.asarray(sound, np.float32)
    if samples.ndim != 1 or not len(samples) or not np.isfinite(samples).all() or rate <= 0:
        raise ValueError(f"pass samples of one channel, at least one, not an array of the shape {samples.shape}")
    return Answer(sound=Sound(samples, rate))
