"""Fields of transcriptions and translations that are wrong, or ask for what cannot be done."""

from __future__ import annotations

import io
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.audio.transcriptions import sound as sounds
from tests.endpoints.audio.listening import ENGLISH, ListeningEngine, for_any_sdk, refused, says, sound

HELLO = says(0.0, " Hello.", 1.0)


def _closed() -> io.BytesIO:
    file = io.BytesIO(sound(1))
    file.close()
    return file


@pytest.fixture(scope="module")
def create() -> Any:
    return LocalOpenAI(engine=ListeningEngine(HELLO)).audio.transcriptions.create


@pytest.mark.parametrize(
    ("fields", "param", "code", "says"),
    [
        ({"response_format": "diarized_json"}, "response_format", "unsupported_value", "Speakers are not told apart"),
        ({"response_format": "yaml"}, "response_format", "invalid_value", "'yaml'"),
        ({"response_format": "srt", "stream": True}, "response_format", "unsupported_value", "A stream has text only"),
        ({"response_format": "verbose_json", "stream": True}, "response_format", "unsupported_value", "stream"),
        ({"known_speaker_names": ["Ada"]}, "known_speaker_names", "unsupported_parameter", "not told apart"),
        ({"known_speaker_references": ["data:"]}, "known_speaker_references", "unsupported_parameter", "not told"),
        ({"timestamp_granularities": ["segment"]}, "timestamp_granularities", "invalid_value", "verbose_json"),
        ({"timestamp_granularities": ["line"]}, "timestamp_granularities[0]", "invalid_value", "'line'"),
        ({"include": ["logprobs"], "response_format": "text"}, "include", "invalid_value", "'json' only"),
        ({"include": ["usage"]}, "include[0]", "invalid_value", "'usage'"),
        ({"language": "klingon"}, "language", "unsupported_value", "'de', 'en', and 'fr'"),
        ({"language": "sv"}, "language", "unsupported_value", "'sv'"),
        ({"languages": ["en", "sv"]}, "languages[1]", "unsupported_value", "'sv'"),
        ({"languages": ["en"], "language": "en"}, "languages", "mutually_exclusive_parameters", "language"),
        ({"temperature": 1.5}, "temperature", "decimal_above_max_value", "<= 1"),
        ({"temperature": "hot"}, "temperature", "invalid_type", "a decimal"),
        ({"chunking_strategy": "words"}, "chunking_strategy", "invalid_value", "'words'"),
        ({"chunking_strategy": {"type": "silence"}}, "chunking_strategy.type", "invalid_value", "'server_vad'"),
        (
            {"chunking_strategy": {"type": "server_vad", "threshold": 2}},
            "chunking_strategy.threshold", "decimal_above_max_value", "<= 1",
        ),
        ({"keywords": ["x" * 300]}, "keywords", "context_length_exceeded", "at most 223"),
        ({"extra_body": {"speed": 2}}, "speed", "unknown_parameter", "'speed'"),
        ({"file": b""}, "file", "invalid_value", "the audio is empty"),
        ({"file": b"hello"}, "file", "invalid_value", "neither WAV nor MP3 nor FLAC"),
        ({"file": _closed()}, "file", "invalid_value", "closed file"),
        ({"file": io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8")}, "file", "invalid_value", "'rb'"),
        ({"file": sound(0)}, "file", "invalid_value", "no samples"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_with_the_field(
    create: Any, fields: dict[str, Any], param: str, code: str, says: str
) -> None:
    error = refused(create, **fields)
    assert (error.param, error.code) == (param, code)
    assert says in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"chunking_strategy": "auto"},
        {"chunking_strategy": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 200}},
        {"timestamp_granularities": [], "include": [], "languages": [], "keywords": []},
        {"language": None, "prompt": None, "temperature": None, "response_format": None, "stream": None},
        {"temperature": 0},
        {"extra_body": {"priority": 1}},
    ],
)
def test_wishes_and_nulls_are_accepted(fields: dict[str, Any]) -> None:
    client = LocalOpenAI(engine=ListeningEngine(HELLO))
    fields = for_any_sdk({"model": "m", "file": sound(1), **fields})
    assert client.audio.transcriptions.create(**fields).text == "Hello."


def test_a_file_is_required(create: Any) -> None:
    client = LocalOpenAI(engine=ListeningEngine(HELLO))
    with pytest.raises(Exception, match="Missing required parameter: 'file'") as caught:
        client.post("/audio/transcriptions", cast_to=object, body={"model": "m"})
    assert getattr(caught.value, "param", None) == "file"


def test_a_model_of_english_knows_no_other_language() -> None:
    create = LocalOpenAI(engine=ListeningEngine(HELLO, settings=ENGLISH)).audio.transcriptions.create
    error = refused(create, language="de")
    assert error.param == "language" and "knows English only" in error.message


def test_a_file_that_is_too_long_is_refused(create: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sounds, "MAX_SECONDS", 2.0)
    error = refused(create, file=sound(2.5))
    assert error.param == "file" and "32000 samples" in error.message
    assert "96000 samples" in refused(create, file=sound(2.5, 96_000)).message


def test_a_sound_that_the_model_cannot_hear_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = ListeningEngine(HELLO)

    def deaf(samples: object, rate: float) -> None:
        raise ValueError("the rate is odd")

    monkeypatch.setattr(engine.model, "listen", deaf)
    error = refused(LocalOpenAI(engine=engine).audio.transcriptions.create)
    assert error.param == "file" and "the rate is odd" in error.message


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI ends whisper-1
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "diarized_json"}, "response_format"),
        ({"extra_body": {"stream": True}}, "stream"),
        ({"extra_body": {"include": ["logprobs"]}}, "include"),
        ({"extra_body": {"language": "sv"}}, "language"),
        ({"temperature": 2}, "temperature"),
    ],
)
def test_translations_have_fewer_fields(fields: dict[str, Any], param: str) -> None:
    client = LocalOpenAI(engine=ListeningEngine(HELLO))
    assert refused(client.audio.translations.create, **fields).param == param
