"""An answer that cannot be read frees its rows at the next step, even while its caller keeps the exception."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import openai
import pytest
from openai import AsyncStream, Stream
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.endpoints.chat.assembler import ChatAssembler
from localai_shim.endpoints.fields import MAX_ENTRIES
from localai_shim.endpoints.turn import Turn
from localai_shim.threads.cache import LRUCache
from tests import inside
from tests.engine.harness import eventually
from tests.watching import LONG, Watch
from tests.watching import client as client
from tests.watching import path as path
from tests.watching import watch as watch

PATH = "/chat/completions"


class Unreadable(Exception):
    """Raised by a reader."""


def fails(*args: Any, **options: Any) -> Any:
    raise Unreadable


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes whole answers unreadable after so many tokens."""

    def begin(tokens: int) -> None:
        seen = 0
        collect = ChatAssembler.collect

        def counted(self: ChatAssembler, index: int, token: Any) -> None:
            nonlocal seen
            seen += 1
            if seen > tokens:
                raise Unreadable
            collect(self, index, token)

        monkeypatch.setattr(ChatAssembler, "collect", counted)

    yield begin
    monkeypatch.undo()


class BrokenStream(Stream[ChatCompletionChunk]):
    def __init__(self, **options: Any) -> None:
        raise Unreadable


class BrokenAsyncStream(AsyncStream[ChatCompletionChunk]):
    def __init__(self, **options: Any) -> None:
        raise Unreadable


def whole(client: Any) -> Any:
    return client.chat.completions.create(**LONG)


def several(client: Any) -> Any:
    return client.chat.completions.create(**LONG, n=3)


def begun(client: Any) -> Any:
    """A stream whose first events cannot be made."""
    return client.chat.completions.create(**LONG, stream=True)


def broken_class(client: Any) -> Any:
    body = {key: value for key, value in LONG.items() if key != "extra_body"} | LONG["extra_body"] | {"stream": True}
    cls = BrokenStream if isinstance(client, openai.OpenAI) else BrokenAsyncStream
    return client.post(PATH, cast_to=ChatCompletion, body=body, stream=True, stream_cls=cls)


WAYS = [whole, several, begun, broken_class]


@pytest.fixture
def unreadable(after: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    def prepare(way: Any) -> None:
        after(3)
        if way is begun:
            monkeypatch.setattr(ChatAssembler, "begin", fails)

    return prepare


@pytest.mark.parametrize("way", WAYS)
def test_the_rows_are_gone_at_the_next_step_while_the_exception_is_kept(
    client: LocalOpenAI, watch: Watch, unreadable: Callable[[Any], None], way: Callable[[Any], Any]
) -> None:
    neighbor = client.chat.completions.create(**LONG, stream=True)
    next(neighbor)
    unreadable(way)
    with pytest.raises((Unreadable, openai.InternalServerError)) as kept:
        way(client)
    since = watch.engine.stats().steps
    assert watch.steps_until_gone(since, rows=1) <= 2 + 1  # the step in which we looked may have begun before
    assert next(neighbor).choices and kept.value.__traceback__ is not None
    neighbor.close()
    assert eventually(lambda: client.stats().running == 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prepared", ["on another thread", "on the event loop"])
@pytest.mark.anyio
async def test_the_rows_of_a_task_are_gone_too(
    path: str,
    client: LocalOpenAI,
    watch: Watch,
    unreadable: Callable[[Any], None],
    way: Callable[[Any], Awaitable[Any]],
    prepared: str,
) -> None:
    async with AsyncLocalOpenAI(path) as shared:
        neighbor = await shared.chat.completions.create(**LONG, stream=True)
        await neighbor.__anext__()
        if prepared == "on another thread":  # as are requests whose fields were not read before
            inside.runtime(client).served(watch.engine).field_cache._known = LRUCache(MAX_ENTRIES)
        unreadable(way)
        with pytest.raises((Unreadable, openai.InternalServerError)) as kept:
            await way(shared)
        since = watch.engine.stats().steps
        assert await anyio.to_thread.run_sync(watch.steps_until_gone, since, 1) <= 2 + 1
        assert (await neighbor.__anext__()).choices and kept.value.__traceback__ is not None
        await neighbor.close()
    assert await anyio.to_thread.run_sync(eventually, lambda: client.stats().running == 0)


def test_a_reader_fails_while_the_row_s_neighbor_is_cancelled(
    client: LocalOpenAI, path: str, watch: Watch, after: Callable[[int], None]
) -> None:
    kept: list[BaseException] = []

    async def read(shared: AsyncLocalOpenAI) -> None:
        try:
            await shared.chat.completions.create(**LONG)
        except BaseException as error:
            kept.append(error)

    async def main() -> None:
        async with AsyncLocalOpenAI(path) as shared:
            staying = await shared.chat.completions.create(**LONG, stream=True)
            await staying.__anext__()
            neighbor = asyncio.ensure_future(read(shared))
            assert await asyncio.to_thread(eventually, lambda: watch.engine.stats().running == 2)
            after(3)
            failing = asyncio.ensure_future(read(shared))
            assert await asyncio.to_thread(eventually, lambda: watch.engine.stats().running == 3 or bool(kept))
            neighbor.cancel()
            await asyncio.gather(neighbor, failing)
            since = watch.engine.stats().steps
            assert await asyncio.to_thread(watch.steps_until_gone, since, 1) <= 2 + 1
            assert (await staying.__anext__()).choices  # which goes on
            await staying.close()

    asyncio.run(main())
    assert {type(error) for error in kept} == {asyncio.CancelledError, openai.InternalServerError}
    assert eventually(lambda: client.stats().running == 0)


@pytest.mark.anyio
async def test_a_call_that_is_cancelled_as_it_hands_over_its_stream_leaves_no_row(
    path: str, client: LocalOpenAI, watch: Watch
) -> None:
    """On the event loop a stream is submitted before its task lets others run for the first time."""
    kept: list[BaseException] = []

    async def ask(shared: AsyncLocalOpenAI) -> None:
        try:
            await shared.chat.completions.create(**LONG, stream=True)
        except BaseException as error:
            kept.append(error)
            raise

    async with AsyncLocalOpenAI(path) as shared:
        await (await shared.chat.completions.create(**LONG, stream=True)).close()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, shared)
            tasks.cancel_scope.cancel()
        assert isinstance(kept[0], anyio.get_cancelled_exc_class())
        assert await anyio.to_thread.run_sync(eventually, lambda: client.stats().running == 0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_makes_something_of_a_whole_answer_may_fail(client: LocalOpenAI, path: str, asynchronous: bool) -> None:
    """The SDK's `post_parser`; its rows have ended by then."""
    body = {"model": "any", "messages": LONG["messages"], "max_tokens": 4}
    options: Any = {"post_parser": fails}

    async def ask_async() -> None:
        async with AsyncLocalOpenAI(path) as shared:
            await shared.post(PATH, cast_to=ChatCompletion, body=body, options=options)

    def ask() -> None:
        client.post(PATH, cast_to=ChatCompletion, body=body, options=options)

    with pytest.raises(Unreadable):
        asyncio.run(ask_async()) if asynchronous else ask()
    assert eventually(lambda: client.stats().running == 0)


@pytest.fixture
def failing_turns(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Turn]]:
    """Turns that cannot read their second event, as a list that fills."""
    turns: list[weakref.ref[Turn]] = []

    def failing(take: Callable[..., Any]) -> Callable[..., Any]:
        def fails(turn: Turn, *event: Any) -> Any:
            if any(known() is turn for known in turns):
                raise KeyboardInterrupt
            turns.append(weakref.ref(turn))
            return take(turn, *event)

        return fails

    for name in ("feed", "collect"):
        monkeypatch.setattr(Turn, name, failing(getattr(Turn, name)))
    return turns


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_failed_is_freed_without_the_garbage_collector(
    stream: bool, client: LocalOpenAI, failing_turns: list[weakref.ref[Turn]]
) -> None:
    failed = False
    try:
        list(client.chat.completions.create(**{**LONG, "stream": stream, "max_tokens": 9}))
    except KeyboardInterrupt:  # as Ctrl-C
        failed = True
    assert failed and [turn() for turn in failing_turns] == [None]
