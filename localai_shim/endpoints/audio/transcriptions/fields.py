"""Fields of requests for transcriptions and translations, of whatever model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ....errors import BadRequest, listed
from ...fields import Fields, as_strings
from ...request_fields import read_priority

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
FORMATS: tuple[Format, ...] = get_args(Format)
TEXT_FORMATS = ("text", "srt", "vtt")
"""Formats whose answer is a plain text."""
MAX_TEMPERATURE = 1.0
_ARRAYS = ("include", "timestamp_granularities", "languages", "keywords")
REFUSED = dict.fromkeys(
    ("known_speaker_names", "known_speaker_references"), "Voices of speakers are not told apart. Leave it out."
)
_MAX_KEYWORDS = 1000


@dataclass(frozen=True, slots=True)
class TranscriptionFields:
    """A request for the text of a file."""

    file: object
    """The upload, in any form of the SDK."""
    translates: bool = False
    """Into English."""
    format: Format = "json"
    stream: bool = False
    languages: Sequence[str] = ()
    """Languages that the speech may be in, as the request names them; empty: any."""
    languages_field: str = "language"
    """The field that has them."""
    prompt: str = ""
    """Text that comes before the speech."""
    keywords: Sequence[str] = ()
    temperature: float = 0.0
    logprobs: bool = False
    words: bool = False
    """Times of words are wanted."""
    segments: bool = True
    """Segments are wanted, in `verbose_json`."""
    priority: int = 0

    def language_path(self, index: int) -> str:
        """The field with one of the languages."""
        return self.languages_field if self.languages_field == "language" else f"{self.languages_field}[{index}]"


def read_transcription(body: Mapping[str, object]) -> TranscriptionFields:
    """Fields of POST /audio/transcriptions.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    fields = Fields(_from_form(body))
    fields.refuse(REFUSED)
    _check_chunking(fields)
    stream = fields.boolean("stream") or False
    format = _read_format(fields, diarized=True)
    if stream and format not in ("json", "text"):
        text = f"Invalid value: '{format}'. A stream has text only: pass 'json' or 'text', or leave 'stream' out."
        raise BadRequest.unsupported_value("response_format", text)
    logprobs = _read_include(fields, format)
    granularities = _read_granularities(fields, format) or ("segment",)
    languages_field, languages = _read_languages(fields)
    keywords = as_strings("keywords", fields.get("keywords", []), most=_MAX_KEYWORDS)
    asked = TranscriptionFields(
        fields.require("file"), False, format, stream, languages, languages_field, fields.string("prompt") or "",
        [word.strip() for word in keywords if word.strip()], _read_temperature(fields), logprobs,
        "word" in granularities, "segment" in granularities, read_priority(fields),
    )  # fmt: skip
    fields.string("model")
    fields.finish()
    return asked


def read_translation(body: Mapping[str, object]) -> TranscriptionFields:
    """Fields of POST /audio/translations; `language` is that of the speech.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    fields = Fields(_from_form(body))
    language = fields.string("language")
    asked = TranscriptionFields(
        fields.require("file"),
        True,
        _read_format(fields),
        languages=() if language is None else (language,),
        prompt=fields.string("prompt") or "",
        temperature=_read_temperature(fields),
        priority=read_priority(fields),
    )
    fields.string("model")
    fields.finish()
    return asked


def _from_form(body: Mapping[str, object]) -> dict[str, object]:
    """The fields, with numbers and booleans of what comes as text: a form has nothing else."""
    found = dict(body)
    for name in ("stream", "temperature", "priority"):
        value = found.get(name)
        if isinstance(value, str):
            found[name] = _from_text(value)
    for name in _ARRAYS:
        value = found.get(name)
        if isinstance(value, str):
            found[name] = [value]
    return found


def _from_text(value: str) -> object:
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _read_format(fields: Fields, *, diarized: bool = False) -> Format:
    given = fields.string("response_format")
    if diarized and given == "diarized_json":
        text = f"Invalid value: 'diarized_json'. Speakers are not told apart; pass one of {listed(FORMATS)}."
        raise BadRequest.unsupported_value("response_format", text)
    return cast(Format, fields.choice("response_format", FORMATS) or "json")


def _read_include(fields: Fields, format: Format) -> bool:
    given = as_strings("include", fields.get("include", []))
    for i, each in enumerate(given):
        if each != "logprobs":
            raise BadRequest.unknown_value(f"include[{i}]", each, ("logprobs",))
    if given and format != "json":
        text = f"'logprobs' can be included with the response_format 'json' only, and not with '{format}'."
        raise BadRequest.invalid("include", text)
    return bool(given)


def _read_granularities(fields: Fields, format: Format) -> Sequence[str]:
    given = as_strings("timestamp_granularities", fields.get("timestamp_granularities", []))
    for i, each in enumerate(given):
        if each not in ("word", "segment"):
            raise BadRequest.unknown_value(f"timestamp_granularities[{i}]", each, ("word", "segment"))
    if given and format != "verbose_json":
        text = f"Timestamps need the response_format 'verbose_json'; it is '{format}'."
        raise BadRequest.invalid("timestamp_granularities", text)
    return given


def _read_languages(fields: Fields) -> tuple[str, list[str]]:
    """The field that names languages, and what it names."""
    one, some = fields.string("language"), as_strings("languages", fields.get("languages", []))
    if one is not None and some:
        raise BadRequest.mutually_exclusive(("language", "languages"))
    return ("language", [one]) if one is not None else ("languages", some)


def _read_temperature(fields: Fields) -> float:
    return fields.number("temperature", 0.0, MAX_TEMPERATURE) or 0.0


def _check_chunking(fields: Fields) -> None:
    """Check `chunking_strategy`, which has no effect: files are always cut, where the model hears a pause."""
    given = fields.get("chunking_strategy")
    if given is None or given == "auto":
        return
    if isinstance(given, str):
        raise BadRequest.unknown_value("chunking_strategy", given, ("auto",))
    with fields.inner("chunking_strategy") as inner:
        inner.option("type", ("server_vad",))
        for name in ("prefix_padding_ms", "silence_duration_ms"):
            _check_number(inner, name, 2.0**31)
        _check_number(inner, "threshold", 1.0)


def _check_number(fields: Fields, name: str, most: float) -> None:
    value = fields.get(name)
    number = _from_text(value) if isinstance(value, str) else value
    Fields({name: number}, fields.path).number(name, 0.0, most)
