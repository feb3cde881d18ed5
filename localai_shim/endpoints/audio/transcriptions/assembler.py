"""Makes the answer of a file's segments: an object, subtitles, a text, or events."""

from __future__ import annotations

import string
from collections.abc import Sequence

from openai import BaseModel
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    Translation,
    TranslationVerbose,
)

from ....prompt.template import ChatTokenizer
from ....types import Token
from ...turn import Assembler, Round
from .fields import TEXT_FORMATS, TranscriptionFields
from .languages import name_of
from .segments import FRAMES_PER_SECOND, Segment
from .subtitles import make_srt, make_vtt
from .transcript import Transcript

_AROUND_WORDS = string.punctuation + "¿¡“”‘«»…。，！？：、（）「」"
TOKENS_PER_SECOND = FRAMES_PER_SECOND // 2
"""Positions of the encoder, which usage counts as tokens of audio."""


class TranscriptionAssembler(Assembler[BaseModel | str]):
    """Runs a transcript's rounds and makes the answer.

    A stream has the text of a window when the window is certain: a window may be decoded again at a higher temperature,
    or in part with the next one, and text that was sent cannot be taken back.

    Args:
        transcript: the file's.
        asked: the request.
        tokenizer: the model's.
        end: ids from this one on are no text.
    """

    def __init__(self, transcript: Transcript, asked: TranscriptionFields, tokenizer: ChatTokenizer, end: int) -> None:
        super().__init__()
        self._transcript, self._asked, self._tokenizer, self._end = transcript, asked, tokenizer, end
        self._sent = ""
        self._space = ""  # which the text so far ends with
        self._scored = 0  # tokens

    def feed(self, index: int, token: Token) -> Sequence[BaseModel]:
        self._transcript.take(index, token)
        return ()

    def collect(self, index: int, token: Token) -> None:
        self._transcript.take(index, token)

    def next_round(self) -> Round:
        """Judge what the round has found."""
        found, events = self._transcript.judge(), list[BaseModel]()
        if self._asked.stream:
            events += [event for segment in found if (event := self._delta(segment)) is not None]
        if not self._transcript.ended:
            return Round(events, self._transcript.works())
        if self._asked.stream:
            events.append(self._done())
        return Round(events, ends=True)

    def finish_reasons(self) -> tuple[str, ...]:
        return ("stop",) if self.finished else ()

    def result(self) -> BaseModel | str:
        if self._asked.format in TEXT_FORMATS:
            return self._plain()
        return self._verbose() if self._asked.format == "verbose_json" else self._object()

    # -- whole answers --------------------------------------------------------------------------------------------

    @property
    def _text(self) -> str:
        return "".join(segment.text for segment in self._transcript.segments).strip()

    def _plain(self) -> str:
        if self._asked.format == "text":
            return self._text
        make = make_srt if self._asked.format == "srt" else make_vtt
        return make(self._transcript.segments)

    def _object(self) -> Transcription | Translation:
        if self._asked.translates:
            return Translation(text=self._text)
        fields: dict[str, object] = {"text": self._text, "usage": self._duration()}
        if self._asked.logprobs:
            fields["logprobs"] = [each for segment in self._transcript.segments for each in self._logprobs(segment)]
        return Transcription.model_validate(fields)

    def _verbose(self) -> TranscriptionVerbose | TranslationVerbose:
        transcript = self._transcript
        segments = [_segment(i, each) for i, each in enumerate(transcript.segments)]
        fields: dict[str, object] = {"duration": transcript.sound.seconds, "text": self._text}
        if self._asked.segments:
            fields["segments"] = segments
        if self._asked.words:
            fields["words"] = [word for segment in transcript.segments for word in _words(segment)]
        if self._asked.translates:
            return TranslationVerbose.model_validate({"language": "english", **fields})
        fields["usage"] = self._duration()
        return TranscriptionVerbose.model_validate({"language": name_of(transcript.language or ""), **fields})

    def _duration(self) -> dict[str, object]:
        return {"type": "duration", "seconds": self._transcript.sound.seconds}

    # -- events -------------------------------------------------------------------------------------------------

    def _delta(self, segment: Segment) -> TranscriptionTextDeltaEvent | None:
        """The event of a segment's text. All of them together are the answer's text, which has no space around it."""
        text = self._space + segment.text if self._sent else segment.text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if not shown:
            return None
        self._sent += shown
        fields: dict[str, object] = {"type": "transcript.text.delta", "delta": shown}
        if self._asked.logprobs:
            fields["logprobs"] = self._logprobs(segment)
        return TranscriptionTextDeltaEvent.model_validate(fields)

    def _done(self) -> TranscriptionTextDoneEvent:
        transcript = self._transcript
        audio = round(transcript.sound.seconds * TOKENS_PER_SECOND)
        prompt, output = transcript.prompt_tokens, transcript.output_tokens
        usage = {
            "type": "tokens",
            "input_tokens": audio + prompt,
            "output_tokens": output,
            "total_tokens": audio + prompt + output,
            "input_token_details": {"audio_tokens": audio, "text_tokens": prompt},
        }
        fields: dict[str, object] = {"text": self._sent, "usage": usage}
        if self._asked.logprobs:
            self._scored = 0
            fields["logprobs"] = [each for segment in transcript.segments for each in self._logprobs(segment)]
        return TranscriptionTextDoneEvent.model_validate({"type": "transcript.text.done", **fields})

    def _logprobs(self, segment: Segment) -> list[dict[str, object]]:
        """The logprobs of a segment's text. The first token of an answer has no space before it, as its text has none.

        Called for one segment after the other.
        """
        made: list[dict[str, object]] = []
        texts = self._tokenizer.token_bytes
        for token in segment.tokens:
            if token.id >= self._end:
                continue
            text, raw = texts.text(token.id), texts(token.id)
            if not self._scored:
                text, raw = text.removeprefix(" "), raw.removeprefix(b" ")
            self._scored += 1
            made.append({"token": text, "bytes": list(raw), "logprob": token.logprob})
        return made


def _words(segment: Segment) -> list[dict[str, object]]:
    """A segment's words as OpenAI's API has them: without spaces and punctuation around them."""
    return [
        {"word": bare_word(word.text), "start": round(word.start, 2), "end": round(word.end, 2)}
        for word in segment.words
    ]


def bare_word(text: str) -> str:
    """A word without space and punctuation around it; punctuation alone is kept."""
    word = text.strip()
    return word.strip(_AROUND_WORDS) or word


def _segment(id: int, segment: Segment) -> dict[str, object]:
    """A segment, as `verbose_json` has it."""
    decoded = segment.decoded
    return {
        "id": id,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [token.id for token in segment.tokens],
        "temperature": decoded.temperature,
        "avg_logprob": decoded.average_logprob,
        "compression_ratio": decoded.compression_ratio,
        "no_speech_prob": segment.no_speech,
    }
