"""POST /audio/speech: a text -> sound, whole or as it is made.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/audio/createSpeech).
"""

from __future__ import annotations

import base64
import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from openai import BaseModel

from ....errors import BadRequest, listed
from ....speech import Speaking
from ....state.store import Store
from ....types import SpeechRequest, Token
from ...fields import Fields
from ...request_fields import read_priority
from ...served import ServedModel
from ...turn import Assembler, Round, Turn
from .binary import Binary

if TYPE_CHECKING:
    from .formats import Writer

log = logging.getLogger("localai_shim")

MAX_TEXT = 32_768
"""Characters of `input`; OpenAI takes 4,096."""
DEFAULT_FORMAT = "mp3"
_EVENTS = "text/event-stream; charset=utf-8"
_VOICE_NAME = re.compile(r"\w[\w ,+-]{0,99}")
"""Names that may be a voice's: nothing that a model's code would take for a path or a URL."""
OPENAI_VOICES = frozenset(
    ["alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"]
)
"""Voices of OpenAI's models, which code and frameworks name by default."""
_READ_ALOUD = re.compile(
    r"You will receive partial sentences\. Do not complete the sentence,? just read out the text\."
)
"""Instructions that openai-agents sends by default: each model does that."""


def prepare(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request.

    Raises:
        BadRequest: a field is wrong, or this model or machine does not support it.
    """
    from .formats import FORMATS, make_writer  # NumPy: other endpoints do without

    settings = model.settings["speak"]
    assert isinstance(settings, Speaking)
    fields = Fields(body)
    fields.string("model")
    text = fields.word("input", MAX_TEXT)
    if not text.strip():
        raise BadRequest.invalid("input", "Invalid 'input': it has only space. Pass a text with words.")
    voice = _read_voice(fields.require("voice"), settings)
    instructions, speed = _read_instructions(fields, settings), _read_speed(fields, settings)
    name = fields.choice("response_format", FORMATS)
    events = fields.choice("stream_format", ("sse", "audio")) == "sse"
    seed, priority = fields.integer("seed"), read_priority(fields)
    fields.finish()
    writer = make_writer(name or DEFAULT_FORMAT, was_given=name is not None)
    work = SpeechRequest(
        text,
        priority=priority,
        tokens=len(model.tokenizer.encode(text)),
        voice=voice,
        instructions=instructions,
        speed=speed,
        seed=None if seed is None else seed % 2**32,
    )
    return Turn(SpeechAssembler(work, writer, FORMATS[name or DEFAULT_FORMAT].media_type, events=events), [work])


def _read_voice(given: object, settings: Speaking) -> str:
    """A voice's name, or an object with its `id`; of a list of the model's, whatever its case.

    A model with a list speaks with its first voice if the name is one of OpenAI's that it does not have.
    """
    path = "voice"
    if isinstance(given, Mapping):
        with Fields(given, path) as inner:
            given, path = inner.require("id"), "voice.id"
    if not isinstance(given, str):
        raise BadRequest.wrong_type(path, "a string or an object with an id" if path == "voice" else "a string", given)
    if not given:
        raise BadRequest.empty_string(path)
    if settings.voices:
        known = {voice.lower(): voice for voice in settings.voices}
        if (voice := known.get(given.lower())) is not None:
            return voice
        if given.lower() in OPENAI_VOICES:
            _note_other_voice(given, settings.voices)
            return settings.voices[0]
        text = f"'{given:.100}' is not a voice of this model. Its voices are {listed(settings.voices)}."
        raise BadRequest.invalid(path, f"Invalid value: {text}")
    if settings.takes_any_voice and not _VOICE_NAME.fullmatch(given):
        raise BadRequest.invalid(path, f"Invalid value: '{given:.100}' is not the name of a voice.")
    return given


@functools.lru_cache(maxsize=64)
def _note_other_voice(given: str, voices: tuple[str, ...]) -> None:
    """Log which voice speaks, once: frameworks name one of OpenAI's in each request."""
    log.warning(
        "the voice '%s' is OpenAI's: this model speaks with '%s'. Its voices: %s", given, voices[0], listed(voices)
    )


def _read_instructions(fields: Fields, settings: Speaking) -> str | None:
    instructions = fields.string("instructions") or None
    if instructions is None and settings.needs_instructions:
        raise BadRequest(
            "Missing required parameter: 'instructions'. This model makes a voice from a description of it.",
            param="instructions",
            code="missing_required_parameter",
        )
    if instructions is not None and not settings.takes_instructions:
        if _READ_ALOUD.fullmatch(instructions):
            return None
        raise BadRequest.unsupported("instructions", "This model does not follow instructions. Leave them out.")
    return instructions


def _read_speed(fields: Fields, settings: Speaking) -> float:
    speed = fields.number("speed", 0.25, 4.0)
    if speed is None:
        return 1.0
    if speed != 1.0 and not settings.takes_speed:
        raise BadRequest.unsupported_value("speed", "This model speaks at one speed. Pass speed=1.0, or leave it out.")
    return speed


class SpeechUsage(BaseModel):
    """Tokens of a text and of its speech."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class SpeechAudioDelta(BaseModel):
    """Event with the next bytes of the sound, in base64."""

    audio: str
    type: Literal["speech.audio.delta"]


class SpeechAudioDone(BaseModel):
    """Last event of a stream."""

    usage: SpeechUsage
    type: Literal["speech.audio.done"]


class SpeechAssembler(Assembler[Binary]):
    """Makes the file of a text's speech.

    Args:
        work: has the pieces of speech as they come.
        writer: of the format.
        media_type: of the format.
        events: the answer is server-sent events with the bytes, not the bytes themselves.
    """

    def __init__(self, work: SpeechRequest, writer: Writer, media_type: str, *, events: bool) -> None:
        super().__init__()
        self._work, self._writer, self._events = work, writer, events
        self.media_type = self._type = _EVENTS if events else media_type
        self._output_tokens = 0
        self._streams = False
        self._whole: Binary

    def feed(self, index: int, token: Token) -> Sequence[Binary]:
        """Take the next piece of a stream; returns its bytes."""
        self._streams = True
        if token.finish_reason is None:
            return self._wrapped(self._write_next())
        if self._writer.waits:
            return ()
        self.finished = True
        return self._last()

    def collect(self, index: int, token: Token) -> None:
        """Leave the pieces to `next_round`: writing takes too long for an event loop."""

    def next_round(self) -> Round:
        """Write the end of a stream, or all of a whole answer."""
        if self._streams:
            return Round(self._last(), ends=True)
        written = b"".join(self._write_next() for _ in range(len(self._work.pieces)))
        content = self._writer.whole(written + self._writer.end())
        if self._events:
            content = b"".join(event.content for event in (*self._wrapped(content), self._done()))
        self._whole = Binary(content=content, media_type=self._type)
        return Round(ends=True)

    def result(self) -> Binary:
        """The whole answer."""
        return self._whole

    def _write_next(self) -> bytes:
        piece = self._work.pieces.popleft()
        self._output_tokens += piece.tokens
        return self._writer.add(piece.samples, piece.rate)

    def _last(self) -> Sequence[Binary]:
        rest = self._wrapped(self._writer.end())
        return (*rest, self._done()) if self._events else rest

    def _wrapped(self, content: bytes) -> Sequence[Binary]:
        if not content:
            return ()
        if self._events:
            return (self._event(SpeechAudioDelta(type="speech.audio.delta", audio=base64.b64encode(content).decode())),)
        return (Binary(content=content, media_type=self._type),)

    def _done(self) -> Binary:
        taken, made = self._work.tokens, self._output_tokens
        usage = SpeechUsage(input_tokens=taken, output_tokens=made, total_tokens=taken + made)
        return self._event(SpeechAudioDone(type="speech.audio.done", usage=usage))

    def _event(self, event: SpeechAudioDelta | SpeechAudioDone) -> Binary:
        content = f"event: {event.type}\ndata: {event.to_json(indent=None)}\n\n".encode()
        return Binary(content=content, media_type=self._type)
