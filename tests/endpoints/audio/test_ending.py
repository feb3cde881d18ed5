"""Transcriptions that end early: canceled, timed out, left, closed, and next to others that fail."""

from __future__ import annotations

import math
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import Reply
from localai_shim.types import GenerationRequest
from tests.endpoints.audio.listening import ListeningEngine, says, sound
from tests.engine.harness import eventually

WORD = says(0.0, " One.", 2.0)


def slow_after(windows: int) -> Any:
    """The first windows of a file are decoded; the next one hangs."""

    def reply(request: GenerationRequest, start: int) -> Reply:
        return WORD if start < windows * 3000 else says(0.0, " Two.", 2.0, delay=math.inf)

    return reply


def test_a_task_that_is_canceled_between_two_windows_leaves_the_engine() -> None:
    engine = ListeningEngine(slow_after(2))

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine) as client:
            with anyio.move_on_after(60) as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(
                        lambda: client.audio.transcriptions.create(model="m", file=sound(120), language="en")
                    )
                    while len(engine.rows) < 3:
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
            assert not scope.cancelled_caught
            assert eventually(lambda: engine.stats().running == 0)
            assert len(engine.rows) == 3, "no further window was begun"

    anyio.run(main)


@pytest.mark.parametrize("stream", [False, True])
def test_a_timeout_in_the_middle_of_a_file_is_that_of_the_sdk(stream: bool) -> None:
    engine = ListeningEngine(slow_after(1))
    client = LocalOpenAI(engine=engine, timeout=0.2, max_retries=0)
    heard: list[Any] = []

    def transcribe() -> None:
        fields: Any = {"model": "m", "file": sound(90), "language": "en", "stream": stream}
        for event in client.audio.transcriptions.create(**fields):
            heard.append(event.delta)

    with pytest.raises(openai.APITimeoutError):
        transcribe()
    assert heard == ["One."] * stream
    assert eventually(lambda: engine.stats().running == 0)


def test_a_stream_that_is_closed_leaves_the_engine() -> None:
    engine = ListeningEngine(slow_after(1))
    client = LocalOpenAI(engine=engine)
    stream = client.audio.transcriptions.create(model="m", file=sound(90), language="en", stream=True)
    assert next(stream).delta == "One."
    stream.close()
    assert eventually(lambda: engine.stats().running == 0)
    assert list(stream) == []


def test_a_stream_that_nobody_reads_any_more_leaves_the_engine() -> None:
    engine = ListeningEngine(slow_after(1))
    client = LocalOpenAI(engine=engine)
    stream: Any = client.audio.transcriptions.create(model="m", file=sound(90), language="en", stream=True)
    assert next(stream).delta == "One."
    del stream
    assert eventually(lambda: engine.stats().running == 0)


def test_a_closed_engine_ends_a_file_with_a_connection_error() -> None:
    engine = ListeningEngine(slow_after(1))
    client = LocalOpenAI(engine=engine, max_retries=0)
    stream = client.audio.transcriptions.create(model="m", file=sound(90), language="en", stream=True)
    assert next(stream).delta == "One."
    engine.close()
    with pytest.raises(openai.APIConnectionError):
        next(stream)


def test_a_row_that_fails_fails_its_own_file_alone() -> None:
    def reply(request: GenerationRequest, start: int) -> Reply:
        is_long = request.prompt.media[0].media.inputs["mel"].shape[0] == 3000
        return says(0.0, " On", fail_after=2) if is_long and start == 3000 else WORD

    engine = ListeningEngine(reply)

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine, max_retries=0) as client:
            create, found = client.audio.transcriptions.create, dict[float, Any]()

            async def transcribe(seconds: float) -> None:
                try:
                    found[seconds] = (await create(model="m", file=sound(seconds), language="en")).text
                except openai.InternalServerError as error:
                    found[seconds] = error

            async with anyio.create_task_group() as group:
                for seconds in (90, 5, 45, 10):
                    group.start_soon(transcribe, float(seconds))
            assert found[5.0] == found[10.0] == "One." and found[45.0] == "One. One."
            assert isinstance(found[90.0], openai.InternalServerError)

    anyio.run(main)
    assert engine.stats().running == 0


def test_two_clients_of_one_engine_transcribe_next_to_each_other() -> None:
    engine = ListeningEngine(lambda request, start: WORD)
    first, second = LocalOpenAI(engine=engine), LocalOpenAI(engine=engine)
    stream = first.audio.transcriptions.create(model="m", file=sound(90), language="en", stream=True)
    assert next(stream).delta == "One."
    assert second.audio.transcriptions.create(model="m", file=sound(40), language="en").text == "One. One."
    assert [event.type for event in stream][-1] == "transcript.text.done"
