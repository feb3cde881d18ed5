"""client.audio.speech.create: what each field takes, what is refused, and errors while a text is spoken."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.endpoints.audio.speaking import create as speaking
from localai_shim.models.speech.voices import Speaker
from localai_shim.sdk import private as sdk
from localai_shim.speech import Speaking, Spoken
from localai_shim.types import SpeechRequest
from tests.conftest import MESSAGES
from tests.mlx_audio_models import RECOGNIZERS, make_speech_model, tiny_speech
from tests.tiny import tiny


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(models={"voices": tiny_speech("qwen3_tts"), "one": tiny_speech("soprano")}) as made:
        yield made


def create(client: LocalOpenAI, **more: Any) -> bytes:
    body = {"model": "voices", "input": "Hi there.", "voice": "ryan", "response_format": "wav", **more}
    return client.audio.speech.create(**body).content


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"voice": "bob"}, "voice", "'bob' is not a voice of this model. Its voices are 'vivian' and 'ryan'"),
    ({"voice": {"id": "voice_1"}}, "voice.id", "'voice_1' is not a voice of this model"),
    ({"voice": {"id": "ryan", "name": "x"}}, "voice.name", "Unknown parameter"),
    ({"voice": 3}, "voice", "expected a string or an object with an id"),
    ({"voice": ""}, "voice", "empty string"),
    ({"voice": None}, "voice", "Missing required parameter"),
    ({"input": ""}, "input", "empty string"),
    ({"input": " \n "}, "input", "it has only space"),
    ({"input": "a" * 40_000}, "input", "maximum length 32768"),
    ({"input": ["a"]}, "input", "expected a string"),
    ({"response_format": "ogg"}, "response_format", "Supported values are: 'mp3', 'opus'"),
    ({"speed": 5}, "speed", "Expected a value <= 4"),
    ({"speed": 0.1}, "speed", "Expected a value >= 0.25"),
    ({"speed": 1.5}, "speed", "speaks at one speed"),
    ({"stream_format": "ws"}, "stream_format", "Supported values are"),
    ({"model": "one", "instructions": "Whisper."}, "instructions", "does not follow instructions"),
    ({"extra_body": {"seed": "x"}}, "seed", "expected an integer"),
    ({"extra_body": {"pitch": 2}}, "pitch", "Unknown parameter: 'pitch'"),
]


@pytest.mark.parametrize("voice", ["alloy", "Ash", {"id": "nova"}])
def test_openai_s_voices_are_the_model_s_first_voice_and_a_log_line_says_so(
    client: LocalOpenAI, voice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    speaking._note_other_voice.cache_clear()
    made, again = (create(client, voice=voice, extra_body={"seed": 1}) for _ in range(2))
    name = voice["id"] if isinstance(voice, dict) else voice
    assert caplog.text.count(f"the voice '{name}' is OpenAI's: this model speaks with 'vivian'") == 1, "once"
    assert made == again == create(client, voice="vivian", extra_body={"seed": 1})
    assert made != create(client, voice="ryan", extra_body={"seed": 1})


@pytest.mark.parametrize(("body", "param", "text"), REFUSED)
def test_a_wrong_field_is_refused_by_its_name(client: LocalOpenAI, body: Any, param: str, text: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, **body)
    assert caught.value.param == param and text in caught.value.message
    with (
        pytest.raises(openai.BadRequestError),
        client.audio.speech.with_streaming_response.create(
            **{"model": "voices", "input": "Hi", "voice": "ryan", "response_format": "wav", **body}
        ),
    ):
        pass


def test_voices_are_found_whatever_their_case_and_as_objects(client: LocalOpenAI) -> None:
    seed = {"extra_body": {"seed": 1}}
    ryan = create(client, **seed)
    assert create(client, voice="Ryan", **seed) == create(client, voice={"id": "RYAN"}, **seed) == ryan
    assert create(client, voice="vivian", **seed) != ryan


def test_a_model_with_one_voice_takes_any_name(client: LocalOpenAI) -> None:
    seed = {"extra_body": {"seed": 1}}
    assert create(client, model="one", voice="alloy", **seed) == create(client, model="one", voice="x/y", **seed)


def test_instructions_change_the_speech_of_a_model_that_follows_them(client: LocalOpenAI) -> None:
    seed = {"extra_body": {"seed": 1}}
    assert create(client, instructions="Speak slowly.", **seed) != create(client, **seed)
    assert create(client, instructions="", **seed) == create(client, **seed)


def test_a_priority_is_taken_and_must_be_an_integer(client: LocalOpenAI) -> None:
    assert create(client, extra_body={"seed": 1, "priority": -1}) == create(client, extra_body={"seed": 1})
    with pytest.raises(openai.BadRequestError, match="'priority'"):
        create(client, extra_body={"priority": "high"})


def test_speed_1_is_taken_by_all_models(client: LocalOpenAI) -> None:
    assert create(client, speed=1.0, extra_body={"seed": 1}) == create(client, extra_body={"seed": 1})


def test_the_default_format_without_ffmpeg_is_an_error_that_says_what_to_do(
    client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(openai.BadRequestError, match="'mp3', which is the default, needs the program ffmpeg") as caught:
        client.audio.speech.create(model="voices", input="Hi", voice="ryan")
    assert caught.value.param == "response_format"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program that is named ffmpeg and writes a letter before what it reads."""
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nprintf x\nexec /bin/cat\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_formats_of_ffmpeg_come_whole_and_in_pieces(client: LocalOpenAI, stand_in: None) -> None:
    seed: dict[str, Any] = {"extra_body": {"seed": 1}}
    pcm = create(client, response_format="pcm", **seed)  # the model has 24,000 samples per second, too
    asked: dict[str, Any] = {"model": "voices", "input": "Hi there.", "voice": "ryan", **seed}
    whole = client.audio.speech.create(**asked)
    assert whole.content == b"x" + pcm and whole.response.headers["content-type"] == "audio/mpeg"
    with client.audio.speech.with_streaming_response.create(**asked) as response:
        assert b"".join(response.iter_bytes()) == b"x" + pcm
    with client.audio.speech.with_streaming_response.create(**asked, stream_format="sse") as response:
        *_, done, _ = response.iter_lines()
    assert '"speech.audio.done"' in done


@pytest.mark.anyio
async def test_async_clients_stream_formats_of_ffmpeg(client: LocalOpenAI, stand_in: None) -> None:
    seed: dict[str, Any] = {"extra_body": {"seed": 1}}
    pcm = create(client, response_format="pcm", **seed)
    async with (
        AsyncLocalOpenAI(tiny_speech("qwen3_tts")) as other,
        other.audio.speech.with_streaming_response.create(
            model="x", input="Hi there.", voice="ryan", response_format="opus", **seed
        ) as response,
    ):
        assert await response.read() == b"x" + pcm


# -- models that are for something else -----------------------------------------------------------------------------


def test_a_model_that_speaks_refuses_chat_and_a_chat_model_speech(client: LocalOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot generate text: it is there to speak texts: it serves cl"):
        client.chat.completions.create(model="voices", messages=MESSAGES)
    with (
        LocalOpenAI(tiny("qwen3")) as chat,
        pytest.raises(openai.BadRequestError, match=r"cannot speak texts: it is there to generate text.*mlx-audio"),
    ):
        create(chat)


@pytest.mark.parametrize("family", RECOGNIZERS)
def test_a_model_that_hears_refuses_to_speak_and_to_chat(family: str) -> None:
    with LocalOpenAI(tiny_speech(family)) as client:
        with pytest.raises(openai.BadRequestError, match="cannot speak texts: it is there to write down speech"):
            create(client)
        with pytest.raises(openai.BadRequestError, match=r"it serves client\.audio\.transcriptions"):
            client.chat.completions.create(model="x", messages=MESSAGES)


def test_lists_of_models_say_the_task_before_a_model_is_loaded() -> None:
    with LocalOpenAI(models={"a": tiny_speech("soprano"), "b": tiny_speech("moonshine")}) as client:
        found = {model.id: model.model_extra for model in client.models.list()}
    assert [(extra or {})["tasks"] for extra in found.values()] == [["speak"], ["recognize"]]


def test_endpoints_of_voices_do_not_exist(client: LocalOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="POST /audio/voices does not exist"):
        client.post("/audio/voices", cast_to=object, body={})


# -- errors while a text is spoken ----------------------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models raise after their first piece."""
    begin = Speaker.begin

    def begin_and_fail(self: Speaker, request: SpeechRequest) -> Iterator[Any]:
        yield next(begin(self, request))
        if "fail" in request.text:
            raise ArithmeticError("no such sound")

    monkeypatch.setattr(Speaker, "begin", begin_and_fail)


def test_a_model_that_raises_is_an_error_of_the_server(client: LocalOpenAI, broken: None) -> None:
    with pytest.raises(openai.InternalServerError, match=r"speaking failed.*no such sound"):
        create(client.with_options(max_retries=0), input="Please fail.")
    assert create(client, input="Please speak.")


def test_a_stream_of_a_model_that_raises_ends_with_the_error(client: LocalOpenAI, broken: None) -> None:
    body: dict[str, Any] = {"model": "voices", "voice": "ryan", "response_format": "pcm", "input": "Please fail."}
    with client.audio.speech.with_streaming_response.create(**body) as response:
        pieces = response.iter_bytes()
        assert next(pieces)
        with pytest.raises(openai.InternalServerError, match="no such sound"):
            next(pieces)


def test_a_client_that_closes_ends_its_streams(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = make_speech_model(tmp_path / "own", "soprano")  # no other client uses its engine
    client, closing = LocalOpenAI(path, keep_alive=0), threading.Event()

    def begin(self: Speaker, request: SpeechRequest) -> Iterator[Spoken]:
        while True:  # until the engine ends
            yield Spoken(np.zeros(100, np.float32), 24_000)
            closing.wait(60)

    monkeypatch.setattr(Speaker, "begin", begin)
    body: dict[str, Any] = {"model": "x", "voice": "x", "response_format": "pcm", "input": "Hi"}
    with client.audio.speech.with_streaming_response.create(**body) as response:
        pieces = response.iter_bytes()
        assert len(next(pieces)) == 200
        closer = threading.Thread(target=client.close)
        closer.start()
        closing.set()
        with pytest.raises((openai.APIConnectionError, sdk.TransportError), match="closed"):
            deque(pieces)
        closer.join(60)


def test_a_request_that_takes_too_long_is_a_timeout(client: LocalOpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        create(client.with_options(max_retries=0), input="Hello. " * 2000, timeout=0.001)


# -- settings -------------------------------------------------------------------------------------------------------


def test_a_voice_is_never_a_path_or_an_address() -> None:
    from localai_shim.endpoints.audio.speaking.create import _read_voice
    from localai_shim.errors import BadRequest

    free = Speaking(takes_any_voice=True)
    assert _read_voice("af_heart,am_adam", free) == "af_heart,am_adam"
    for name in ("/etc/passwd", "voice.wav", "http://example.com/a", "..", "a" * 200):
        with pytest.raises(BadRequest, match="is not the name of a voice"):
            _read_voice(name, free)


def test_a_model_that_makes_voices_from_descriptions_needs_one(tmp_path: Path) -> None:
    path = make_speech_model(tmp_path / "design", "qwen3_tts", tts_model_type="voice_design")
    with LocalOpenAI(path, keep_alive=0) as client:
        with pytest.raises(openai.BadRequestError, match="makes a voice from a description"):
            create(client)
        assert create(client, instructions="A deep voice.")
