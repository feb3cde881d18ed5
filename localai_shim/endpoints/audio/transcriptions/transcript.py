"""A file's text in the making: window after window, as OpenAI's `whisper.transcribe` does it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ....speech import Attended, Transcribing
from ....types import AlignmentRequest, Prompt, SamplingParams, Token, TranscriptionRequest, Work
from ...served import ServedModel
from .fields import TranscriptionFields
from .segments import FRAMES_PER_SECOND, Decoded, Segment, ends_at_stamp, split
from .sound import Sound, seconds_of
from .timestamps import TimestampConstraint, TimestampRules
from .words import UNSPACED, align, split_words, time_words

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Tried in turn where a request has no temperature, until a window's text is good enough."""
MOST_COMPRESSION = 2.4
"""A text whose compression ratio is higher repeats itself."""
LEAST_LOGPROB = -1.0
"""A text whose mean logprob is lower is a guess."""
MOST_NO_SPEECH = 0.6
"""A guess at a window that has no speech, with a higher probability, is left out."""
KEPT_TEMPERATURE = 0.5
"""A text of a higher temperature is no part of the next window's prompt."""


class Heard(NamedTuple):
    """Text of a window, without the times of its words."""

    decoded: Decoded
    segments: Sequence[Segment]
    ahead: int
    """Frames up to the next window."""


class Transcript:
    """Decodes a file. `works` and `judge` are called in turn, once per round, until it has `ended`.

    A round has the window's row, or a request for the likelihood of languages and of silence, or both. If times of
    words are wanted, another round follows for each window.

    Args:
        sound: the file.
        asked: the request.
        model: decodes it.
        settings: of the model.
        languages: codes of those that the speech may be in; empty: the model knows English only.
        prompt: tokens of the text before the speech.

    Attributes:
        language: code of the speech's language; None: it is not known yet.
        segments: what was said so far.
        prompt_tokens, output_tokens: of all rows so far.
    """

    def __init__(
        self,
        sound: Sound,
        asked: TranscriptionFields,
        model: ServedModel,
        settings: Transcribing,
        languages: Sequence[str] = (),
        prompt: Sequence[int] = (),
    ) -> None:
        self.sound, self._asked, self._model, self._settings = sound, asked, model, settings
        self._languages, self._previous = languages, list(prompt)
        self.language: str | None = "en" if not languages else languages[0] if len(languages) == 1 else None
        self.segments: list[Segment] = []
        self.prompt_tokens = self.output_tokens = 0
        self._temperatures = (asked.temperature,) if asked.temperature else TEMPERATURES
        self._rules = TimestampRules(settings)
        self._seek = 0
        self._row: list[Token] | None = None  # tokens of the round's row; None: it has none
        self._probe: Prompt | None = None
        self._last_word = 0.0  # its end, in seconds
        self._begin_window()

    def _begin_window(self) -> None:
        self._attempt = 0
        self._decoded: Decoded | None = None  # which has to be judged
        self._no_speech = None if self._settings.no_speech is not None else 0.0
        self._heard: Heard | None = None  # whose words have no times yet
        self._alignment: AlignmentRequest | None = None

    @property
    def ended(self) -> bool:
        """The whole file was decoded."""
        return self._seek >= self.sound.frames

    @property
    def _frames(self) -> int:
        """Frames of sound in the window."""
        most = round(self._settings.window_seconds / seconds_of(1))
        return min(most, self.sound.frames - self._seek)

    @property
    def _before(self) -> list[int]:
        """Tokens in front of `Transcribing.begin`: the end of what was said before the window."""
        most = self._settings.max_tokens // 2 - 1
        return [self._settings.previous, *self._previous[-most:]] if self._previous else []

    # -- rounds -------------------------------------------------------------------------------------------------

    def works(self) -> Sequence[Work]:
        """The next round."""
        if self._heard is not None:
            self._alignment = self._align(self._heard)
            return [self._alignment]
        works: list[Work] = []
        self._row = self._probe = None
        if self.language is not None and self._decoded is None:
            self._row = []
            works.append(self._row_of_window())
        if self.language is None or (self._no_speech is None and (self._reports_silence or self._decoded is not None)):
            works.append(self._question())
        return works

    @property
    def _reports_silence(self) -> bool:
        """The answer says how likely it is that there is no speech. Others ask only if the text is a guess."""
        return self._asked.format == "verbose_json"

    def _row_of_window(self) -> TranscriptionRequest:
        settings, temperature = self._settings, self._temperatures[self._attempt]
        tokens = [settings.end, *self._before, settings.begin]
        task = settings.translate if self._asked.translates else settings.transcribe
        if task is not None and self.language is not None:
            tokens += [settings.languages[self.language], task]
        sampling = SamplingParams(
            temperature=temperature, seed=self._attempt, top_logprobs=0, group_from=settings.first_timestamp
        )
        self.prompt_tokens += len(tokens) - 1
        return self._request(
            self.sound.prompt(tokens, self._seek, self._frames, self._model.adapter),
            sampling,
            min(settings.max_tokens // 2, settings.max_tokens - len(tokens) + 1),
            TimestampConstraint(self._rules),
        )

    def _question(self) -> TranscriptionRequest:
        """Ask for the likelihood of silence, and of languages."""
        settings = self._settings
        before = self._before if self.language is not None else []
        watched = [*self._watched_silence, *(settings.languages[code] for code in self._asked_languages)]
        tokens = [settings.end, *before, settings.begin, settings.end]
        self._probe = self.sound.prompt(tokens, self._seek, self._frames, self._model.adapter, watched)
        return self._request(self._probe, SamplingParams(temperature=0.0), 1)

    @property
    def _watched_silence(self) -> tuple[int, ...]:
        return () if self._settings.no_speech is None else (self._settings.no_speech,)

    @property
    def _asked_languages(self) -> Sequence[str]:
        return self._languages if self.language is None else ()

    def _request(
        self, prompt: Prompt, sampling: SamplingParams, most: int, constraint: TimestampConstraint | None = None
    ) -> TranscriptionRequest:
        return TranscriptionRequest(
            prompt, sampling, most, constraint=constraint, speculation=False, priority=self._asked.priority
        )

    def take(self, index: int, token: Token) -> None:
        """Take a token of a round's work; its row is the first."""
        if self._row is not None and index == 0:
            self._row.append(token)

    # -- between two rounds ---------------------------------------------------------------------------------------

    def judge(self) -> Sequence[Segment]:
        """Take what the round has found; returns the segments that are now certain."""
        if self._heard is not None and self._alignment is not None:
            return self._timed(self._heard, self._alignment.pieces.popleft())
        if self._probe is not None:
            self._read_answers(self._probe)
        if self._row is not None:
            tokens = self._row
            self.output_tokens += len(tokens)
            text = self._text(tokens)
            self._decoded = Decoded.of(tokens, self._temperatures[self._attempt], text, self._settings.end)
        decoded = self._decoded
        if decoded is None or (self._no_speech is None and decoded.average_logprob <= LEAST_LOGPROB):
            return ()
        if self._fails(decoded) and self._attempt + 1 < len(self._temperatures):
            self._attempt, self._decoded = self._attempt + 1, None
            return ()
        return self._accept(decoded)

    def _read_answers(self, probe: Prompt) -> None:
        assert probe.scores is not None
        found = list(probe.scores[len(probe.tokens) - 2].watched)
        silence = found.pop(0) if self._watched_silence else None
        if silence is not None and (self.language is not None or not self._previous):
            self._no_speech = math.exp(silence)
        if found:
            self.language = max(zip(found, self._languages, strict=True), key=lambda each: each[0])[1]

    def _fails(self, decoded: Decoded) -> bool:
        """A text that repeats itself, or is a guess at speech."""
        if decoded.average_logprob < LEAST_LOGPROB:
            return not self._is_silent
        return decoded.compression_ratio > MOST_COMPRESSION

    @property
    def _is_silent(self) -> bool:
        return self._no_speech is not None and self._no_speech > MOST_NO_SPEECH

    def _accept(self, decoded: Decoded) -> Sequence[Segment]:
        """End the window."""
        if self._is_silent and decoded.average_logprob <= LEAST_LOGPROB:
            return self._end_window((), self._frames)
        heard = Heard(decoded, *self._segments(decoded))
        if heard.segments and self._asked.words:
            self._heard = heard
            return ()
        return self._keep(heard)

    def _keep(self, heard: Heard) -> Sequence[Segment]:
        self._previous += [token.id for segment in heard.segments for token in segment.tokens]
        if heard.decoded.temperature > KEPT_TEMPERATURE:
            self._previous.clear()
        return self._end_window(heard.segments, heard.ahead)

    def _end_window(self, found: Sequence[Segment], ahead: int) -> Sequence[Segment]:
        self.segments += found
        self._seek += ahead
        self._begin_window()
        return found

    def _segments(self, decoded: Decoded) -> tuple[list[Segment], int]:
        """Segments of the window that say something, and the frames up to the next window."""
        begins = seconds_of(self._seek)
        places, ahead = split([token.id for token in decoded.tokens], self._settings, self._frames)
        found = []
        for place, start, end in places:
            tokens = decoded.tokens[place]
            text = self._text(tokens)
            if text.strip() and start != end:
                times = round(begins + start, 6), round(begins + end, 6)
                found.append(Segment(*times, tokens, text, self._seek, decoded, self._no_speech or 0.0))
        return found, ahead

    # -- times of words -------------------------------------------------------------------------------------------

    def _align(self, heard: Heard) -> AlignmentRequest:
        """Ask for the attention to the window while its text is read."""
        settings, start = self._settings, [self._settings.begin]
        task = settings.translate if self._asked.translates else settings.transcribe
        if task is not None and self.language is not None:
            start += [settings.languages[self.language], task]
        tokens = [*start, settings.no_timestamps, *self._spoken(heard.segments), settings.end]
        window = self.sound.window(self._seek, self._frames)
        return AlignmentRequest(
            window, tokens, len(start), settings.end, self._frames // 2, priority=self._asked.priority
        )

    def _timed(self, heard: Heard, attended: Attended) -> Sequence[Segment]:
        """Give the window's segments their words. If speech continues, the next window begins behind the last one."""
        spaced = self.language not in UNSPACED
        words = split_words(self._spoken(heard.segments), self._model.tokenizer.decode, spaced=spaced)
        timed = align(attended.weights, len(attended.weights[0]) - len(attended.probabilities) - 2,
                      attended.probabilities.tolist(), words)  # fmt: skip
        given = [(each.start, each.end, len(self._spoken([each]))) for each in heard.segments]
        begins = seconds_of(self._seek)
        found = [
            replace(segment, start=its.start, end=its.end, words=its.words)
            for segment, its in zip(heard.segments, time_words(given, timed, begins, self._last_word), strict=True)
        ]
        self._last_word = max([self._last_word, *(segment.end for segment in found if segment.words)])
        ahead = heard.ahead
        if self._last_word > begins and not ends_at_stamp([each.id for each in heard.decoded.tokens], self._settings):
            ahead = round(self._last_word * FRAMES_PER_SECOND) - self._seek
        lasting = [segment for segment in found if segment.start != segment.end]
        return self._keep(Heard(heard.decoded, lasting, ahead))

    def _spoken(self, segments: Sequence[Segment]) -> list[int]:
        return [token.id for segment in segments for token in segment.tokens if token.id < self._settings.end]

    def _text(self, tokens: Sequence[Token]) -> str:
        return self._model.tokenizer.decode([token.id for token in tokens if token.id < self._settings.end])
