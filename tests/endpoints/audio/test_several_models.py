"""One client that answers, hears, and speaks: `models=` has a model for each, and each is served next to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import MESSAGES
from tests.endpoints.audio.quiet import terse_whisper
from tests.mlx_audio_models import tiny_speech
from tests.prompt.media.files import wav
from tests.speech_models import sound
from tests.tiny import tiny

MODELS = {
    "whisper-1": terse_whisper,
    "parakeet": lambda: tiny_speech("parakeet"),
    "gpt-4o-mini-tts": lambda: tiny_speech("qwen3_tts"),
    "gpt-4o": lambda: tiny("qwen3"),
}
CHAT: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES, "max_tokens": 12, "temperature": 0, "seed": 1}
HEAR: dict[str, Any] = {"model": "whisper-1", "file": ("a.wav", wav(sound(0)))}
SPEAK: dict[str, Any] = {
    "model": "gpt-4o-mini-tts",
    "input": "Hello there.",
    "voice": "ryan",
    "response_format": "pcm",
    "extra_body": {"seed": 3},
}
Ask = Callable[[Any], Any]
ASKED: dict[str, tuple[Ask, Callable[[Any], Any]]] = {
    "chat": (lambda client: client.chat.completions.create(**CHAT), lambda made: made.choices[0].message.content),
    "hear": (lambda client: client.audio.transcriptions.create(**HEAR), lambda made: made.text),
    "hear otherwise": (
        lambda client: client.audio.transcriptions.create(**{**HEAR, "model": "parakeet"}),
        lambda made: made.text,
    ),
    "speak": (lambda client: client.audio.speech.create(**SPEAK), lambda made: made.content),
}


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[LocalOpenAI, AsyncLocalOpenAI]]:
    models = {name: make() for name, make in MODELS.items()}
    with LocalOpenAI(models=models) as client:
        yield client, AsyncLocalOpenAI(models=models)


@pytest.fixture(scope="module")
def alone(clients: Any) -> dict[str, Any]:
    """The answer that each request has when nothing else is asked for."""
    made = {name: result(ask(clients[0])) for name, (ask, result) in ASKED.items()}
    assert all(made.values())
    return made


def test_answers_of_threads_are_those_that_each_has_alone(clients: Any, alone: dict[str, Any]) -> None:
    def run(name: str) -> Any:
        ask, result = ASKED[name]
        return result(ask(clients[0]))

    names = [*ASKED, *ASKED]
    with ThreadPoolExecutor(len(names)) as threads:
        assert list(threads.map(run, names)) == [alone[name] for name in names]


def test_answers_of_tasks_are_those_that_each_has_alone(clients: Any, alone: dict[str, Any]) -> None:
    found: list[tuple[str, Any]] = []

    async def run(name: str) -> None:
        ask, result = ASKED[name]
        found.append((name, result(await ask(clients[1]))))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for name in (*ASKED, *ASKED):
                group.start_soon(run, name)

    anyio.run(main)
    assert len(found) == 2 * len(ASKED) and all(answer == alone[name] for name, answer in found)


def test_a_failed_request_of_one_kind_leaves_the_others_alone(clients: Any, alone: dict[str, Any]) -> None:
    client = clients[0]
    stream = client.chat.completions.create(**CHAT, stream=True)
    pieces = [next(stream).choices[0].delta.content or ""]
    with pytest.raises(openai.BadRequestError, match="Its voices are"):
        client.audio.speech.create(**{**SPEAK, "voice": "bob"})
    with pytest.raises(openai.BadRequestError, match="file"):
        client.audio.transcriptions.create(**{**HEAR, "file": ("a.wav", b"RIFF")})
    pieces += [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(pieces) == alone["chat"]


WRONG: dict[str, tuple[Ask, str]] = {
    "chat with a model that hears": (
        lambda client: client.chat.completions.create(**{**CHAT, "model": "whisper-1"}),
        r"cannot generate text.* Pass model='gpt-4o', which this client has for that\.",
    ),
    "a response with a model that speaks": (
        lambda client: client.responses.create(model="gpt-4o-mini-tts", input="Hi"),
        r"cannot generate text.* Pass model='gpt-4o', which this client has for that\.",
    ),
    "transcription with a chat model": (
        lambda client: client.audio.transcriptions.create(**{**HEAR, "model": "gpt-4o"}),
        r"models that transcribe speech are 'whisper-1' and 'parakeet': pass one of these as 'model'\.",
    ),
    "speech with a model that hears": (
        lambda client: client.audio.speech.create(**{**SPEAK, "model": "whisper-1"}),
        r"cannot speak texts.* Pass model='gpt-4o-mini-tts', which this client has for that\.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_the_models_of_the_client_that_do_it(clients: Any, name: str) -> None:
    ask, says = WRONG[name]
    with pytest.raises(openai.BadRequestError, match=says) as caught:
        ask(clients[0])
    assert (caught.value.param, caught.value.code) == ("model", "unsupported_model")


def test_the_models_are_named_before_any_of_them_is_loaded() -> None:
    models = {name: make() for name, make in MODELS.items()}
    with LocalOpenAI(models=models, keep_alive=0) as client:
        for name, says in (("gpt-4o", "'whisper-1' and 'parakeet'"), ("gpt-4o-mini-tts", "'whisper-1' and 'parakeet'")):
            with pytest.raises(openai.BadRequestError, match=says):
                client.audio.transcriptions.create(**{**HEAR, "model": name})


def test_an_error_says_which_kinds_do_it_if_no_model_of_the_client_does() -> None:
    models = {name: MODELS[name]() for name in ("parakeet", "gpt-4o-mini-tts")}
    with LocalOpenAI(models=models, keep_alive=0) as client:
        with pytest.raises(
            openai.BadRequestError, match="Pass another model, such as one of several that a client has"
        ):
            client.chat.completions.create(**{**CHAT, "model": "parakeet"})
        with pytest.raises(openai.BadRequestError, match="Pass another model"):
            client.embeddings.create(model="gpt-4o-mini-tts", input="Hi")
