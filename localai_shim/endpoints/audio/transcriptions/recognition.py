"""Turns for models that write down speech, and are no Whisper: a whole file is one piece of work."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import chain

from openai import BaseModel
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    Translation,
    TranslationVerbose,
)

from ....errors import BadRequest
from ....speech import SAMPLE_RATE, HeardSegment, Recognized, Recognizing
from ....speech.resampling import resampled
from ....threads.deadline import check
from ....types import RecognitionRequest, Token
from ...served import ServedModel
from ...turn import Assembler, Turn
from .assembler import bare_word
from .fields import TranscriptionFields
from .languages import NAMES, read_language
from .segments import compression_ratio
from .sound import read_samples
from .subtitles import make_srt, make_vtt

log = logging.getLogger("localai_shim")


def recognition_turn(asked: TranscriptionFields, model: ServedModel) -> Turn:
    """Make the turn of a request. A language or prompt that the model does not take has no effect.

    Raises:
        BadRequest: the request asks for what only Whisper models do, or the file is no sound.
    """
    settings = model.settings.get("recognize")
    settings = settings if isinstance(settings, Recognizing) else Recognizing()
    _check(asked, model, settings)
    languages = asked.languages
    if settings.checks_language:
        languages = [read_language(each, NAMES, asked.language_path(i)) for i, each in enumerate(languages)]
    samples, rate = read_samples(asked.file, "file")
    check()
    _note_ignored(asked, model.name, settings)
    language = languages[0] if len(languages) == 1 else None
    prompt = "\n".join(filter(None, (asked.prompt.strip(), ", ".join(asked.keywords)))) or None
    work = RecognitionRequest(
        resampled(samples, rate, SAMPLE_RATE),
        language=language,
        prompt=prompt,
        temperature=asked.temperature or None,
        priority=asked.priority,
    )
    return Turn(RecognitionAssembler(work, asked), [work], stream=asked.stream)


def _check(asked: TranscriptionFields, model: ServedModel, settings: Recognizing) -> None:
    only = f"The model '{model.name}' gives none; Whisper models do."
    if asked.translates and not settings.translates:
        text = f"The model '{model.name}' cannot translate. Load a multilingual Whisper model."
        raise BadRequest(text, param="model", code="unsupported_model")
    if asked.words and not settings.times_words:
        text = f"Invalid value: 'word'. {only} Pass 'segment', or leave it out."
        raise BadRequest.unsupported_value("timestamp_granularities", text)
    if asked.logprobs and not settings.gives_logprobs:
        raise BadRequest.unsupported_value("include", f"Invalid value: 'logprobs'. {only}")


def _note_ignored(asked: TranscriptionFields, name: str, settings: Recognizing) -> None:
    """Log which fields of a request have no effect."""
    ignored = {
        asked.languages_field: asked.languages and not settings.takes_language,
        "prompt": asked.prompt.strip() and not settings.takes_prompt,
        "keywords": asked.keywords and not settings.takes_prompt,
        "temperature": asked.temperature and not settings.takes_temperature,
    }
    if fields := [field for field, has_no_effect in ignored.items() if has_no_effect]:
        log.info("the model '%s' does not take these fields, which have no effect: %s", name, ", ".join(fields))
    elif len(asked.languages) > 1:
        log.info("the model '%s' takes one language: several have no effect", name)


def join_parts(parts: Sequence[Recognized]) -> Recognized:
    """All parts of a file in one."""
    return Recognized(
        "".join(part.space * bool(i) + part.text for i, part in enumerate(part for part in parts if part.text)),
        tuple(chain.from_iterable(part.segments for part in parts)),
        next((part.language for part in parts if part.language is not None), None),
        sum(part.prompt_tokens for part in parts),
        sum(part.output_tokens for part in parts),
        sum(part.seconds for part in parts),
        tuple(chain.from_iterable(part.words for part in parts)),
        tuple(chain.from_iterable(part.tokens for part in parts)),
    )


def _usage(whole: Recognized) -> object:
    return {
        "type": "tokens",
        "input_tokens": whole.prompt_tokens,
        "output_tokens": whole.output_tokens,
        "total_tokens": whole.prompt_tokens + whole.output_tokens,
    }


class RecognitionAssembler(Assembler[BaseModel | str]):
    """Makes the answer of the parts of a file. A stream has the text of each part when the model has read it.

    Args:
        work: has the parts.
        asked: the request.
    """

    def __init__(self, work: RecognitionRequest, asked: TranscriptionFields) -> None:
        super().__init__()
        self._work, self._asked = work, asked
        self._parts: list[Recognized] = []
        self._has_text = False

    def feed(self, index: int, token: Token) -> Sequence[BaseModel]:
        before, had_text = len(self._parts), self._has_text
        self.collect(index, token)
        events: list[BaseModel] = []
        for part in self._parts[before:]:
            if part.text:
                scored = {"delta": part.space * had_text + part.text, **self._logprobs(part)}
                events.append(TranscriptionTextDeltaEvent.model_validate({"type": "transcript.text.delta", **scored}))
        if self.finished:
            whole = join_parts(self._parts)
            fields = {"text": whole.text, "usage": _usage(whole), **self._logprobs(whole)}
            events.append(TranscriptionTextDoneEvent.model_validate({"type": "transcript.text.done", **fields}))
        return events

    def collect(self, index: int, token: Token) -> None:
        if self._work.pieces:
            self._parts.append(self._work.pieces.popleft())
            self._has_text = self._has_text or bool(self._parts[-1].text)
        self.finished = token.finish_reason is not None

    def finish_reasons(self) -> tuple[str, ...]:
        return ("stop",) if self.finished else ()

    def result(self) -> BaseModel | str:
        whole = join_parts(self._parts)
        match self._asked.format:
            case "text":
                return whole.text
            case "srt":
                return make_srt(whole.segments)
            case "vtt":
                return make_vtt(whole.segments)
            case "verbose_json":
                return self._verbose(whole)
        if self._asked.translates:
            return Translation(text=whole.text)
        fields = {"text": whole.text, "usage": self._duration(), **self._logprobs(whole)}
        return Transcription.model_validate(fields)

    def _duration(self) -> dict[str, object]:
        return {"type": "duration", "seconds": len(self._work.samples) / SAMPLE_RATE}

    def _verbose(self, whole: Recognized) -> TranscriptionVerbose | TranslationVerbose:
        duration = self._duration()
        fields: dict[str, object] = {"duration": duration["seconds"], "text": whole.text}
        if self._asked.segments:
            fields["segments"] = [self._segment(i, each) for i, each in enumerate(whole.segments)]
        if self._asked.translates:
            return TranslationVerbose.model_validate({"language": "english", **fields})
        if self._asked.words:
            timed = whole.words
            fields["words"] = [{"word": bare_word(each.text), "start": each.start, "end": each.end} for each in timed]
        return TranscriptionVerbose.model_validate({"language": whole.language or "", "usage": duration, **fields})

    def _logprobs(self, heard: Recognized) -> dict[str, object]:
        """The field `logprobs` of some tokens, if the request asks for it."""
        if not self._asked.logprobs:
            return {}
        scored = [{"token": each.text, "bytes": [*each.spelling], "logprob": each.logprob} for each in heard.tokens]
        return {"logprobs": scored}

    def _segment(self, id: int, segment: HeardSegment) -> dict[str, object]:
        """A segment, as `verbose_json` has it. These models say nothing of tokens and their likelihood."""
        return {
            "id": id,
            "seek": math.floor(100 * segment.start),
            "start": segment.start,
            "end": segment.end,
            "text": segment.text,
            "tokens": [],
            "temperature": self._asked.temperature,
            "avg_logprob": 0.0,
            "compression_ratio": compression_ratio(segment.text),
            "no_speech_prob": 0.0,
        }
