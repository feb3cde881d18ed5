"""One stream and several readers: threads take turns, tasks are told, and nobody waits for what will not come."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine
from tests.engine.harness import eventually

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
RESPONSE: dict[str, Any] = {"model": "m", "input": "Hi", "stream": True}
BEHIND: dict[str, Any] = {**RESPONSE, "background": True}
STREAMS: dict[str, Callable[[Any], Any]] = {
    "chat": lambda client: client.chat.completions.create(**CHAT),
    "response": lambda client: client.responses.create(**RESPONSE),
    "background": lambda client: client.responses.create(**BEHIND),
}
WORDS = [f"word{i} " for i in range(40)]
kinds = pytest.mark.parametrize("begin", STREAMS.values(), ids=STREAMS)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(lambda request, prompt, before: Reply(WORDS)) as made:
        yield made


@pytest.fixture
def slow() -> Iterator[ScriptedEngine]:
    """Every reader waits for each word, and for the end."""
    with ScriptedEngine(lambda request, prompt, before: Reply(WORDS[:10], interval=0.01)) as made:
        yield made


@pytest.fixture
def hanging() -> Iterator[ScriptedEngine]:
    """Says nothing after the first word."""
    with ScriptedEngine(lambda request, prompt, before: Reply(WORDS, interval=math.inf)) as made:
        yield made


def read(stream: Any) -> list[Any]:
    """Everything that comes, until there is no more or an error."""
    found: list[Any] = []
    try:
        found.extend(stream)  # keeps what came before an error
    except openai.OpenAIError as error:
        found.append(error)
    return found


@kinds
def test_threads_that_share_a_stream_take_turns_and_all_end_with_it(slow: ScriptedEngine, begin: Any) -> None:
    alone = [type(event) for event in begin(LocalOpenAI(engine=slow))]
    stream = begin(LocalOpenAI(engine=slow, timeout=100))
    with ThreadPoolExecutor(4) as threads:
        parts = [each.result(timeout=50) for each in [threads.submit(read, stream) for _ in range(4)]]
    assert sorted(map(str, alone)) == sorted(str(type(event)) for part in parts for event in part)


@kinds
def test_closing_a_stream_wakes_the_thread_that_reads_it(hanging: ScriptedEngine, begin: Any) -> None:
    stream = begin(LocalOpenAI(engine=hanging, timeout=100))
    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(read, stream) for _ in range(2)]
        assert eventually(lambda: hanging.stats().running == 1)
        stream.close()
        ends = [reader.result(timeout=50)[-1:] for reader in readers]
    errors = [end[0] for end in ends if end and isinstance(end[0], openai.OpenAIError)]
    assert len(errors) <= 1  # of the one that waited for an event, if it did so already
    assert all(isinstance(error, openai.APIConnectionError) and "closed" in str(error) for error in errors)


class ClosedBefore(deque[Any]):
    """Events of a stream that another thread closes just before one is taken."""

    def __init__(self, events: Any) -> None:
        super().__init__(events._ready)
        self._close = events.close

    def popleft(self) -> Any:
        with ThreadPoolExecutor(1) as other:
            other.submit(self._close).result(timeout=50)
        return super().popleft()


def test_a_stream_that_is_closed_as_an_event_is_taken_ends(engine: ScriptedEngine) -> None:
    stream = STREAMS["response"](LocalOpenAI(engine=engine))
    assert next(stream).type == "response.created"
    events = stream._iterator._events  # those that the tests' checks of bodies look through
    events._ready = ClosedBefore(events)
    assert list(stream) == []


@kinds
@pytest.mark.anyio
async def test_a_second_task_is_told_that_another_one_reads(hanging: ScriptedEngine, begin: Any) -> None:
    stream = await begin(AsyncLocalOpenAI(engine=hanging, timeout=100))
    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:

            async def first() -> None:
                with pytest.raises(openai.APIConnectionError, match="closed while it was read"):
                    async for _ in stream:
                        pass

            tasks.start_soon(first)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="another task is reading this stream"):
                async for _ in stream:
                    pass
            await stream.close()


# -- timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [math.inf, 1e300, openai.Timeout(math.inf), None], ids=str)
@pytest.mark.parametrize("stream", [False, True])
def test_a_timeout_may_be_longer_than_a_thread_can_wait(engine: ScriptedEngine, timeout: Any, stream: bool) -> None:
    asked: dict[str, Any] = {**CHAT, "stream": stream}
    client = LocalOpenAI(engine=engine, timeout=timeout)
    made: Any = client.chat.completions.create(**asked)
    assert len(list(made)) > 3
    made = LocalOpenAI(engine=engine).chat.completions.create(**asked, timeout=timeout)
    assert len(list(made)) > 3


@pytest.mark.anyio
async def test_a_timeout_of_an_async_client_may_be_endless(engine: ScriptedEngine) -> None:
    made = await AsyncLocalOpenAI(engine=engine, timeout=math.inf).chat.completions.create(**CHAT)
    assert len([chunk async for chunk in made]) > 3


@pytest.mark.parametrize("timeout", ["abc", "3", math.nan, -1, (3, 4), openai.Timeout(3, read=-1)], ids=str)
def test_a_timeout_that_is_none_is_refused(engine: ScriptedEngine, timeout: Any) -> None:
    for make in (LocalOpenAI, AsyncLocalOpenAI):
        with pytest.raises(ValueError, match="'timeout' must be seconds"):
            make(engine=engine, timeout=timeout)
    client = LocalOpenAI(engine=engine)
    with pytest.raises(openai.BadRequestError, match="'timeout' must be seconds") as caught:
        client.chat.completions.create(**CHAT, timeout=timeout)
    assert caught.value.param == "timeout"
    client.timeout = timeout
    with pytest.raises(openai.BadRequestError, match="'timeout' must be seconds"):
        client.models.list()
