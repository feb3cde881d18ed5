"""Speech of scripted models: the text that they hear in a file, and the tone that they speak."""

from __future__ import annotations

import codecs
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...speech import SAMPLE_RATE, HeardSegment, HeardToken, Recognized, Spoken
from ...types import Event, GenerationRequest, Prompt, RecognitionRequest, SamplingParams, SpeechRequest, Token
from .clock import REAL, Clock
from .replies import Patience, Place, PlayedRow, Reply, Script, ScriptedModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SPEECH_RATE = 24_000
"""Samples per second of made-up speech."""
SECONDS_PER_CHARACTER = 0.01
"""Of made-up speech: the longest text takes about five minutes."""
PIECE_SECONDS = 0.25
"""Length of the pieces in which given speech is played."""
_LOUDNESS = 0.1
_LOWEST_HZ, _TONES = 200, 400
_AUDIO_TOKENS_PER_SECOND = 50
_ENDLESS = 2**31


@dataclass(frozen=True, slots=True)
class Heard:
    """Segments and language of a file, apart from its text."""

    segments: tuple[HeardSegment, ...] = ()
    """With times of the script."""
    texts: tuple[str, ...] = ()
    """Segments without times, which share the file's length by their characters."""
    language: str | None = None
    """Its name; None: the request's, or English."""

    @property
    def end(self) -> float:
        """Seconds that a file must have."""
        return max((segment.end for segment in self.segments), default=0.0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sound:
    """Speech that a script gives."""

    samples: npt.NDArray[np.float32]
    rate: int

    def __repr__(self) -> str:
        return f"<{len(self.samples) / self.rate:.2f} seconds of speech>"

    def pieces(self) -> list[Spoken]:
        """Pieces that a stream has; none is empty."""
        size = max(1, round(PIECE_SECONDS * self.rate))
        starts = range(0, len(self.samples), size)
        return [Spoken(self.samples[start : start + size], self.rate, 1) for start in starts]


# -- what is heard --------------------------------------------------------------------------------------------------


class PlayedTranscript(PlayedRow):
    """A script's text as parts of a file's, a token each."""

    def __init__(
        self,
        work: RecognitionRequest,
        place: Place,
        script: Script,
        model: ScriptedModel,
        heard: Heard | None = None,
        clock: Clock = REAL,
        patience: Patience | None = None,
    ) -> None:
        prompt = Prompt(model.encode(work.prompt or ""))
        request = GenerationRequest(prompt, SamplingParams(top_logprobs=0), _ENDLESS, timings=work.timings)
        super().__init__(request, place, script, model, False, clock, patience)
        self._max_tokens = _ENDLESS
        self._work, self._spelling = work, model.tokenizer.bytes_of
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._space = ""  # which no part has yet
        self._begun = False  # a part with text was made
        text = model.tokenizer.decode(script.ids).strip()
        self._head: Recognized | None = _head(work, text, len(prompt.tokens), heard or Heard())

    def next(self) -> Event:
        """The next event, whose part the work has then."""
        event = super().next()
        if isinstance(event, Token):
            self._work.pieces.append(self._part(event))
        return event

    def _part(self, token: Token) -> Recognized:
        raw = b"" if token.is_eos else self._spelling(token.id)
        text = self._space + self._decode(raw, token.finish_reason is not None)
        shown = text.strip()
        space = text[: len(text) - len(text.lstrip())] if shown else ""
        self._space = text[len(space) + len(shown) :]
        part, self._head = self._head or Recognized(""), None
        scored: tuple[HeardToken, ...] = ()
        if not token.is_eos and token.logprob is not None:
            spelling = raw if self._begun else raw.lstrip()
            scored = (HeardToken(spelling, token.logprob),)
        self._begun = self._begun or bool(shown)
        return part._replace(text=shown, space=space, tokens=scored, output_tokens=1)


def _head(work: RecognitionRequest, text: str, prompt_tokens: int, heard: Heard) -> Recognized:
    """A first part without its text: it has the times of all."""
    seconds = len(work.samples) / SAMPLE_RATE
    texts = heard.texts or ((text,) if text else ())
    segments = heard.segments or _spread(texts, HeardSegment(0.0, seconds, text))
    words = tuple(word for each in segments for word in _spread(each.text.split(), each))
    audio = round(seconds * _AUDIO_TOKENS_PER_SECOND)
    language = heard.language or _language(work)
    return Recognized("", segments, language, audio + prompt_tokens, 0, seconds, words)


def _language(work: RecognitionRequest) -> str:
    from ...endpoints.audio.transcriptions.languages import name_of

    return name_of((work.language or "en").lower())


def _spread(texts: Sequence[str], over: HeardSegment) -> tuple[HeardSegment, ...]:
    """Texts, one after the other, each with a share of some seconds by its characters."""
    count = sum(map(len, texts)) or 1
    made, at = list[HeardSegment](), 0
    for text in texts:
        start, end = (over.start + (over.end - over.start) * done / count for done in (at, at + len(text)))
        made.append(HeardSegment(_floor(start), _floor(end), text))
        at += len(text)
    return tuple(made)


def _floor(seconds: float) -> float:
    """Rounded down to milliseconds: no time is beyond the file's end."""
    return math.floor(seconds * 1000 + 1e-6) / 1000


# -- what is spoken -------------------------------------------------------------------------------------------------


class PlayedSpeech(PlayedRow):
    """Pieces of speech, a token each."""

    def __init__(
        self,
        work: SpeechRequest,
        place: Place,
        script: Script,
        model: ScriptedModel,
        pieces: Sequence[Spoken],
        clock: Clock = REAL,
        patience: Patience | None = None,
    ) -> None:
        request = GenerationRequest(Prompt([]), SamplingParams(), _ENDLESS, timings=work.timings)
        super().__init__(request, place, script, model, False, clock, patience)
        self._max_tokens = _ENDLESS
        self._work, self._pieces = work, pieces

    def next(self) -> Event:
        """The next event, whose piece the work has then. The last event has none."""
        event = super().next()
        if isinstance(event, Token) and event.finish_reason is None:
            self._work.pieces.append(self._pieces[self.generated - 1])
        return event


def speech_reply(pieces: Sequence[Spoken]) -> Reply:
    """The reply of some pieces of speech: a token for each."""
    return Reply(["<speech>"] * len(pieces))


def make_up_speech(work: SpeechRequest) -> list[Spoken]:
    """A tone, whose length depends on the text and the speed, and its pitch on the voice; a piece for each word."""
    import numpy as np

    digest = hashlib.sha256((work.voice or "").encode()).digest()
    pitch = _LOWEST_HZ + int.from_bytes(digest[:4], "little") % _TONES
    made, start = list[Spoken](), 0.0
    for word in re.findall(r"\s*\S+", work.text):
        end = start + len(word) * SECONDS_PER_CHARACTER / work.speed
        time = np.arange(round(start * SPEECH_RATE), round(end * SPEECH_RATE)) / SPEECH_RATE
        tone = _LOUDNESS * np.sin(2 * np.pi * pitch * time)
        made.append(Spoken(tone.astype(np.float32), SPEECH_RATE, 1))
        start = end
    return made
