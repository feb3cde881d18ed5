"""A tiny Whisper model from the file to the answer: mlx-audio says the same, alone, in a batch, and streamed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.endpoints.audio.transcriptions import transcript
from tests.conftest import revalidate
from tests.endpoints.audio import oracle
from tests.engine.harness import eventually
from tests.prompt.media.files import wav
from tests.speech_models import sound, whisper


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[LocalOpenAI, AsyncLocalOpenAI]]:
    path = str(whisper())
    with LocalOpenAI(path) as client:
        model: Any = load(client).model
        model.settings = {"transcribe": replace(model.settings["transcribe"], max_tokens=64)}
        yield client, AsyncLocalOpenAI(path)


def load(client: LocalOpenAI) -> Any:
    """The engine of a client, with its model."""
    engine: Any = client._runtime.engine("m")
    engine.wait()
    return engine


@pytest.fixture(autouse=True)
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model guesses: every text is taken as it is."""
    monkeypatch.setattr(transcript, "TEMPERATURES", (0.0,))
    monkeypatch.setattr(transcript, "LEAST_LOGPROB", -math.inf)


def test_a_long_file_has_the_text_and_segments_of_mlx_audio(clients: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client, samples = clients[0], sound(3, 63.0)
    made = client.audio.transcriptions.create(
        model="m", file=wav(samples), language="en", response_format="verbose_json"
    )
    revalidate(made)
    settings = load(client).model.settings["transcribe"]
    expected = oracle.transcribe(samples, settings, monkeypatch)
    said = [each for each in expected.segments if each["text"]]
    assert len({each["seek"] for each in said}) > 1
    assert [each.tokens for each in made.segments] == [each["tokens"] for each in said]
    assert [(each.seek, each.text) for each in made.segments] == [(each["seek"], each["text"]) for each in said]
    times = [(each.start, each.end) for each in made.segments]
    assert np.allclose(times, [(each["start"], each["end"]) for each in said])
    assert made.duration == 63.0 and all(0 <= each.no_speech_prob < 0.1 for each in made.segments)


def test_sixteen_files_at_a_time_have_the_texts_that_each_has_alone(clients: Any) -> None:
    client, several = clients
    files = [wav(sound(number, 4.0)) for number in range(16)]
    found: dict[int, str] = {}

    async def main() -> None:
        async def transcribe(number: int) -> None:
            made = await several.audio.transcriptions.create(model="m", file=files[number])
            found[number] = made.text

        async with anyio.create_task_group() as group:
            for number in range(16):
                group.start_soon(transcribe, number)

    before = client.stats()
    anyio.run(main)
    stats = client.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    assert stats.steps - before.steps < (stats.generated_tokens - before.generated_tokens) / 2, "rows share steps"
    for number in (0, 7):
        *deltas, done = client.audio.transcriptions.create(model="m", file=files[number], stream=True)
        assert found[number] == done.text == "".join(delta.delta for delta in deltas)


def test_a_task_that_is_canceled_leaves_the_engine(clients: Any) -> None:
    client, several = clients

    async def main() -> None:
        with anyio.move_on_after(60) as scope:
            async with anyio.create_task_group() as group:
                file = wav(sound(1, 60.0))
                group.start_soon(lambda: several.audio.transcriptions.create(model="m", file=file))
                await anyio.to_thread.run_sync(lambda: eventually(lambda: client.stats().running))
                group.cancel_scope.cancel()
        assert not scope.cancelled_caught

    anyio.run(main)
    assert eventually(lambda: client.stats().running == client.stats().waiting == 0)
