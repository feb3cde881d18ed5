"""client.audio.speech.create on tiny models: the samples are mlx-audio's own, whole, streamed, sync and async."""

from __future__ import annotations

import base64
import functools
import io
import json
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.endpoints.audio.speaking.formats import as_pcm
from tests.conftest import MESSAGES
from tests.engine.harness import eventually
from tests.mlx_audio_models import tiny_speech
from tests.tiny import tiny

TEXT = "Hello world, this is a test."
LINES = f"{TEXT}\nAnother line."
RATES = {"qwen3_tts": 24_000, "soprano": 32_000}


@functools.cache
def upstream(family: str) -> Any:
    """mlx-audio's own model."""
    from mlx_audio.tts.utils import load_model

    return load_model(tiny_speech(family))


class Made(NamedTuple):
    """What mlx-audio's own `generate` makes of a text."""

    pieces: list[bytes]
    """16 bits of each piece."""
    tokens: int


@functools.cache
def made(family: str, text: str = TEXT, seed: int | None = None) -> Made:
    """The speech of a text; without a seed, of `seed_of`."""
    import mlx.core as mx

    model = upstream(family)  # which draws numbers when it is made
    mx.random.seed(seed_of(family) if seed is None else seed)
    how = {"voice": "ryan", "stream": True} if family == "qwen3_tts" else {}
    found = [*model.generate(text, **how)]
    pieces = [as_pcm(np.array(piece.audio)) for piece in found]
    return Made([piece for piece in pieces if piece], sum(piece.token_count for piece in found if piece.samples))


@functools.cache
def seed_of(family: str) -> int:
    """A seed with which a model speaks in several pieces: random weights may end a text at any time."""
    text = LINES if family == "soprano" else TEXT
    return next(seed for seed in range(50) if len(made(family, text, seed).pieces) > 1)


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    models = {family: tiny_speech(family) for family in RATES}
    with LocalOpenAI(models=models) as made:
        yield made


def fields(family: str = "qwen3_tts", seed: int | None = -1, **more: Any) -> dict[str, Any]:
    """Arguments of `create`; by default with the seed of `seed_of`."""
    extra: dict[str, Any] = {"extra_body": {"seed": seed_of(family) if seed == -1 else seed}}
    return {"model": family, "input": TEXT, "voice": "ryan", "response_format": "wav", **extra, **more}


def expected(family: str = "qwen3_tts", **more: Any) -> bytes:
    """16 bits of all pieces."""
    return b"".join(made(family, **more).pieces)


# -- sound ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", RATES)
def test_a_wav_file_has_the_samples_that_mlx_audio_makes(client: LocalOpenAI, family: str) -> None:
    answer = client.audio.speech.create(**fields(family))
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATES[family], 1, 2)
        assert file.readframes(file.getnframes()) == expected(family)
    assert answer.response.headers["content-type"] == "audio/wav"


def test_a_stream_brings_each_piece_when_it_is_made(client: LocalOpenAI, tmp_path: Path) -> None:
    pieces = made("qwen3_tts").pieces
    assert len(pieces) > 1
    with client.audio.speech.with_streaming_response.create(**fields(response_format="pcm")) as response:
        assert response.headers["content-type"] == "audio/pcm" and response.headers["x-request-id"]
        assert [*response.iter_bytes()] == pieces
    with client.audio.speech.with_streaming_response.create(**fields(response_format="pcm")) as response:
        response.stream_to_file(tmp_path / "speech.pcm")
    assert (tmp_path / "speech.pcm").read_bytes() == b"".join(pieces)
    with client.audio.speech.with_streaming_response.create(**fields()) as response:
        streamed = response.read()
    with wave.open(io.BytesIO(streamed)) as file:
        assert file.readframes(10**6) == b"".join(pieces)


def test_pcm_of_a_model_with_another_rate_has_24_000_samples_per_second(client: LocalOpenAI) -> None:
    whole = client.audio.speech.create(**fields("soprano", response_format="pcm")).content
    samples = len(expected("soprano")) // 2
    assert len(whole) == 2 * -(-samples * 24_000 // 32_000)
    with client.audio.speech.with_streaming_response.create(**fields("soprano", response_format="pcm")) as response:
        assert response.read() == whole


def test_a_text_of_several_lines_comes_in_a_piece_for_each(client: LocalOpenAI) -> None:
    asked = fields("soprano", input=LINES)
    assert client.audio.speech.create(**asked).content[44:] == expected("soprano", text=LINES)
    with client.audio.speech.with_streaming_response.create(**asked) as response:
        first, second = response.iter_bytes()
    assert [first[44:], second] == made("soprano", LINES).pieces


def test_events_have_the_sound_in_base64_and_the_usage(client: LocalOpenAI) -> None:
    def read(text: str) -> tuple[bytes, dict[str, Any]]:
        *deltas, done = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert {each["type"] for each in deltas} == {"speech.audio.delta"}
        return b"".join(base64.b64decode(each["audio"]) for each in deltas), done

    asked = fields(response_format="pcm", stream_format="sse")
    with client.audio.speech.with_streaming_response.create(**asked) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [*response.iter_lines()]
    streamed, done = read("\n".join(lines))
    whole, same = read(client.audio.speech.create(**asked).text)
    assert streamed == whole == expected() and done == same
    usage = done["usage"]
    assert done["type"] == "speech.audio.done" and usage["input_tokens"] > 5
    assert usage["output_tokens"] == made("qwen3_tts").tokens == usage["total_tokens"] - usage["input_tokens"]
    assert sum(line.startswith("data: ") for line in lines) == len(made("qwen3_tts").pieces) + 1


def test_raw_responses_and_clients_of_other_code_get_the_same_file(client: LocalOpenAI) -> None:
    whole = client.audio.speech.create(**fields()).content
    raw = client.audio.speech.with_raw_response.create(**fields())
    assert raw.headers["content-type"] == "audio/wav" and raw.parse().content == whole
    path = tiny_speech("qwen3_tts")
    with openai.OpenAI(api_key="unused", http_client=http_client(path)) as other:
        assert other.audio.speech.create(**fields()).content == whole
        with other.audio.speech.with_streaming_response.create(**fields(response_format="pcm")) as response:
            assert b"".join(response.iter_bytes()) == whole[44:]


def test_a_seed_gives_the_same_speech_and_no_seed_another(client: LocalOpenAI) -> None:
    def speak(**more: Any) -> bytes:
        return client.audio.speech.create(**fields(**more)).content

    assert speak(seed=5) == speak(seed=5) != speak(seed=6)
    assert len({speak(seed=None) for _ in range(3)}) == 3


# -- async, threads, and readers that leave -------------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_clients_get_the_same_bytes() -> None:
    async with AsyncLocalOpenAI(tiny_speech("qwen3_tts")) as client:
        answer = await client.audio.speech.create(**fields(response_format="pcm"))
        assert answer.content == expected()
        found = []
        async with client.audio.speech.with_streaming_response.create(**fields(response_format="pcm")) as response:
            async for piece in response.iter_bytes():
                found.append(piece)
        assert found == made("qwen3_tts").pieces


@pytest.mark.anyio
async def test_requests_of_several_tasks_each_get_their_own_speech() -> None:
    texts = [f"This is text number {i}." for i in range(3)]
    found: dict[str, bytes] = {}
    async with AsyncLocalOpenAI(tiny_speech("qwen3_tts")) as client:

        async def ask(text: str) -> None:
            answer = await client.audio.speech.create(**fields(response_format="pcm", input=text))
            found[text] = answer.content

        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(ask, text)
    for text in texts:
        assert found[text] == expected(text=text)


def test_requests_of_several_threads_each_get_their_own_speech(client: LocalOpenAI) -> None:
    found: dict[int, bytes] = {}

    def ask(seed: int) -> None:
        found[seed] = client.audio.speech.create(**fields(response_format="pcm", seed=seed)).content

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {seed: expected(seed=seed) for seed in range(4)}


def test_a_reader_that_leaves_ends_its_request_and_no_other(client: LocalOpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(**fields(input=TEXT * 20)) as response:
        assert next(response.iter_bytes())
    assert eventually(lambda: client.stats("qwen3_tts").waiting == 0)
    assert client.audio.speech.create(**fields()).content[44:] == expected()


def test_chat_of_another_model_goes_on_while_a_text_is_spoken(client: LocalOpenAI) -> None:
    with LocalOpenAI(models={"speech": tiny_speech("qwen3_tts"), "chat": tiny("qwen3")}) as both:
        how: dict[str, Any] = {"model": "chat", "messages": MESSAGES, "temperature": 0, "max_tokens": 30}
        alone = both.chat.completions.create(**how)
        with both.audio.speech.with_streaming_response.create(
            **fields(model="speech", response_format="pcm")
        ) as response:
            beside = both.chat.completions.create(**how)
            assert response.read() == expected()
    assert beside.choices == alone.choices
