"""Responses on event loops: many at once, left, cancelled, timed out."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine
from tests.endpoints.responses.legal import check_response
from tests.engine.harness import eventually
from tests.lost import STREAM_TIMEOUT

WORDS = "one two three four five six seven eight nine ten"
pytestmark = pytest.mark.anyio


def ask(client: Any, **more: Any) -> Any:
    return client.responses.create(**{"model": "m", "input": "Go on", **more})


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    made = ScriptedEngine(lambda request, prompt, before: Reply(WORDS, interval=math.inf if "Hang" in prompt else 0))
    yield made
    made.close()


@pytest.fixture
async def scripted(engine: ScriptedEngine) -> AsyncIterator[AsyncLocalOpenAI]:
    async with AsyncLocalOpenAI(engine=engine) as client:
        yield client


async def test_many_at_once_say_what_each_says_alone(async_client: AsyncLocalOpenAI, client: LocalOpenAI) -> None:
    inputs = [f"Say {word}" for word in WORDS.split()]
    alone = [ask(client, input=text, temperature=0, max_output_tokens=10).output_text for text in inputs]
    said: dict[str, str] = {}

    async def one(i: int) -> None:
        wanted: dict[str, Any] = {"input": inputs[i], "temperature": 0, "max_output_tokens": 10}
        if i % 2:
            made = await ask(async_client, **wanted)
            check_response(made)
            said[inputs[i]] = made.output_text
        else:
            stream = await ask(async_client, **wanted, stream=True)
            deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            said[inputs[i]] = "".join(deltas)

    async with anyio.create_task_group() as group:
        for i in range(len(inputs)):
            group.start_soon(one, i)
    assert [said[text] for text in inputs] == alone


async def test_a_cancelled_task_frees_its_row(scripted: AsyncLocalOpenAI, engine: ScriptedEngine) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: ask(scripted, input="Hang"))
        assert await anyio.to_thread.run_sync(eventually, lambda: engine.stats().running == 1)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(eventually, lambda: not engine.stats().running)


async def test_a_stream_that_is_closed_frees_its_row(scripted: AsyncLocalOpenAI, engine: ScriptedEngine) -> None:
    stream = await ask(scripted, input="Hang", stream=True)
    assert (await anext(stream)).type == "response.created"
    assert await anyio.to_thread.run_sync(eventually, lambda: engine.stats().running == 1)
    await stream.close()
    assert await anyio.to_thread.run_sync(eventually, lambda: not engine.stats().running)


async def test_timeouts_are_the_sdks(scripted: AsyncLocalOpenAI, engine: ScriptedEngine) -> None:
    hasty = scripted.with_options(timeout=0.05, max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        await ask(hasty, input="Hang")
    with pytest.raises(STREAM_TIMEOUT):
        async for _ in await ask(hasty, input="Hang", stream=True):
            pass
    assert await anyio.to_thread.run_sync(eventually, lambda: not engine.stats().running)


async def test_the_helpers_parse_and_accumulate(scripted: AsyncLocalOpenAI) -> None:
    async with scripted.responses.stream(model="m", input="Go on") as stream:
        snapshot = ""
        async for event in stream:
            if event.type == "response.output_text.delta":
                snapshot = event.snapshot
        final = await stream.get_final_response()
    assert snapshot == final.output_text == WORDS


async def test_state_is_there_for_async_callers_too(scripted: AsyncLocalOpenAI) -> None:
    first = await ask(scripted)
    second = await ask(scripted, previous_response_id=first.id)
    assert await scripted.responses.retrieve(second.id) == second
    assert [item.type async for item in scripted.responses.input_items.list(second.id)] == ["message"]
    conversation = await scripted.conversations.create()
    await ask(scripted, conversation=conversation.id)
    assert len([item async for item in scripted.conversations.items.list(conversation.id)]) == 2
    await scripted.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await scripted.responses.retrieve(first.id)


async def test_a_failure_in_the_middle_is_told_by_events(engine: ScriptedEngine) -> None:
    failing = ScriptedEngine([Reply(WORDS, error=RuntimeError("bad luck"), fail_after=4)] * 2)
    async with AsyncLocalOpenAI(engine=failing) as client:
        kinds = [event.type async for event in await ask(client, stream=True)]
        assert kinds[-2:] == ["error", "response.failed"]
        with pytest.raises(openai.InternalServerError, match="bad luck"):
            await ask(client)
    failing.close()
