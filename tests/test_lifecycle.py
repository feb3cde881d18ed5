"""However a consumer goes away, its row leaves the engine within two steps and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests import inside
from tests.engine.harness import eventually
from tests.lost import STREAM_TIMEOUT
from tests.samples import only
from tests.watching import LONG, Watch
from tests.watching import client as client
from tests.watching import path as path
from tests.watching import watch as watch


def leave_by_break(client: LocalOpenAI) -> None:
    for chunk in client.chat.completions.create(**LONG, stream=True):
        if chunk.choices[0].delta.content:
            break


def leave_by_close(client: LocalOpenAI) -> None:
    stream = client.chat.completions.create(**LONG, stream=True)
    next(stream)
    stream.close()
    assert list(stream) == []


def leave_by_context_manager(client: LocalOpenAI) -> None:
    with client.chat.completions.create(**LONG, stream=True) as stream:
        next(stream)


def leave_by_dropping_unread(client: LocalOpenAI) -> None:
    client.chat.completions.create(**LONG, stream=True)
    gc.collect()


def leave_by_dropping_a_cycle(client: LocalOpenAI) -> None:
    stream = client.chat.completions.create(**LONG, stream=True)
    next(stream)
    holder: list[Any] = [stream]
    holder.append(holder)
    del stream, holder
    gc.collect()


def leave_by_timeout(client: LocalOpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**LONG, timeout=0.05)


def leave_by_exception(client: LocalOpenAI) -> None:
    def read() -> None:
        for _ in client.chat.completions.create(**LONG, stream=True):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()


def leave_by_raw_response(client: LocalOpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(**LONG, stream=True) as response:
        next(response.iter_lines())


SYNC_WAYS = [
    leave_by_break,
    leave_by_close,
    leave_by_context_manager,
    leave_by_dropping_unread,
    leave_by_dropping_a_cycle,
    leave_by_timeout,
    leave_by_exception,
    leave_by_raw_response,
]


@pytest.mark.parametrize("leave", SYNC_WAYS)
def test_a_sync_consumer_frees_its_row_within_two_steps(
    client: LocalOpenAI, watch: Watch, leave: Callable[[LocalOpenAI], None]
) -> None:
    neighbour = client.chat.completions.create(**LONG, stream=True)
    next(neighbour)
    leave(client)
    since = watch.engine.stats().steps
    assert watch.steps_until_gone(since, rows=1) <= 2 + 1  # the step in which we looked may have begun before
    neighbour.close()
    assert eventually(lambda: watch.engine.stats().running == 0)


async def aleave_by_break(client: AsyncLocalOpenAI) -> None:
    async for chunk in await client.chat.completions.create(**LONG, stream=True):
        if chunk.choices[0].delta.content:
            break


async def aleave_by_aclose(client: AsyncLocalOpenAI) -> None:
    stream = await client.chat.completions.create(**LONG, stream=True)
    await stream.__anext__()
    await stream.close()


async def aleave_by_context_manager(client: AsyncLocalOpenAI) -> None:
    async with await client.chat.completions.create(**LONG, stream=True) as stream:
        await stream.__anext__()


async def aleave_by_dropping_unread(client: AsyncLocalOpenAI) -> None:
    await client.chat.completions.create(**LONG, stream=True)
    gc.collect()


async def aleave_by_timeout(client: AsyncLocalOpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        await client.chat.completions.create(**LONG, timeout=0.05)


async def _cancelled(work: Awaitable[Any], started: asyncio.Event) -> None:
    task = asyncio.ensure_future(work)
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.__cause__ is None


async def aleave_by_cancelling_a_reader(client: AsyncLocalOpenAI) -> None:
    started = asyncio.Event()

    async def read() -> None:
        async for _ in await client.chat.completions.create(**LONG, stream=True):
            started.set()

    await _cancelled(read(), started)


async def aleave_by_cancelling_a_call(client: AsyncLocalOpenAI) -> None:
    started = asyncio.Event()
    engine = inside.engine(client)
    assert engine is not None
    running = engine.stats().running

    async def call() -> None:
        asyncio.get_running_loop().create_task(notice())
        await client.chat.completions.create(**LONG)

    async def notice() -> None:
        await asyncio.to_thread(eventually, lambda: engine.stats().running > running)
        started.set()

    await _cancelled(call(), started)


ASYNC_WAYS = [
    aleave_by_break,
    aleave_by_aclose,
    aleave_by_context_manager,
    aleave_by_dropping_unread,
    aleave_by_timeout,
    aleave_by_cancelling_a_reader,
    aleave_by_cancelling_a_call,
]


@pytest.mark.parametrize("leave", ASYNC_WAYS)
def test_an_async_consumer_frees_its_row_within_two_steps(
    client: LocalOpenAI, watch: Watch, path: str, leave: Callable[[AsyncLocalOpenAI], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(path) as shared:
            assert inside.engine(shared) is watch.engine
            neighbour = await shared.chat.completions.create(**LONG, stream=True)
            await neighbour.__anext__()
            await leave(shared)
            since = watch.engine.stats().steps
            gone = await asyncio.to_thread(watch.steps_until_gone, since, 1)
            assert gone <= 2 + 1
            await neighbour.close()

    asyncio.run(main())
    assert eventually(lambda: watch.engine.stats().running == 0)


def test_calls_cancelled_at_any_moment_of_their_preparation_leave_no_row(path: str, watch: Watch) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(path) as shared:
            for i in range(60):
                task = asyncio.ensure_future(shared.chat.completions.create(**LONG, stream=bool(i % 2)))
                for _ in range(i // 6):
                    await asyncio.sleep(0.0003)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                del task
            gc.collect()

    asyncio.run(main())
    assert eventually(lambda: watch.engine.stats().running + watch.engine.stats().waiting == 0)
    assert not inside.loop(watch.engine).tickets


def test_an_event_loop_that_ends_frees_the_rows_of_its_streams(path: str, client: LocalOpenAI, watch: Watch) -> None:
    kept: list[Any] = []

    async def main() -> None:
        shared = AsyncLocalOpenAI(path)
        kept.append(shared)
        stream = await shared.chat.completions.create(**LONG, stream=True)
        await stream.__anext__()
        kept.append(stream)  # held beyond the loop's end, and never closed

    asyncio.run(main())
    assert eventually(lambda: watch.engine.stats().running == 0)


TIMEOUT, PAUSE = 1.0, 0.02  # seconds: fifty gaps are no longer than the timeout, however busy the machine


class Stalling:
    """Lets a model's steps through until it is told to hold them up."""

    def __init__(self, model: Any) -> None:
        self.free = threading.Event()
        self.free.set()
        self.pause = 0.0
        """Seconds that each step takes at least."""
        self._forward = model.forward
        model.forward = self._stalled
        self.model = model

    def _stalled(self, step: Any) -> Any:
        self.free.wait(60)
        time.sleep(self.pause)
        return self._forward(step)

    def undo(self) -> None:
        self.free.set()
        self.model.forward = self._forward


@pytest.fixture
def stalling(watch: Watch) -> Iterator[Stalling]:
    stalling = Stalling(watch.engine.model)
    yield stalling
    stalling.undo()


def test_a_stream_times_out_by_the_gap_between_its_chunks_and_not_by_its_length(
    client: LocalOpenAI, watch: Watch, stalling: Stalling
) -> None:
    stalling.pause = PAUSE
    stream = client.chat.completions.create(**LONG, stream=True, timeout=TIMEOUT)
    began = time.monotonic()
    for _ in stream:
        if time.monotonic() - began > 1.3 * TIMEOUT:  # longer than the timeout in all, and no gap as long
            break
    stalling.free.clear()
    with pytest.raises(STREAM_TIMEOUT):
        list(stream)
    stalling.free.set()
    assert eventually(lambda: watch.engine.stats().running == 0)


async def read_to_the_end(stream: Any) -> None:
    while True:
        await stream.__anext__()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_stream_times_out_by_the_gap_too(path: str, watch: Watch, stalling: Stalling, backend: str) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(path) as shared:
            stalling.pause = PAUSE
            stream = await shared.chat.completions.create(**LONG, stream=True, timeout=TIMEOUT)
            began = time.monotonic()
            while time.monotonic() - began < 1.3 * TIMEOUT:
                await stream.__anext__()
            stalling.free.clear()
            with pytest.raises(STREAM_TIMEOUT):
                await read_to_the_end(stream)

    anyio.run(main, backend=backend)
    stalling.free.set()
    assert eventually(lambda: watch.engine.stats().running == 0)


def resident_kilobytes() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("many", only([15], [15, 200]))
def test_many_rounds_leave_no_row_no_thread_and_no_memory_behind(client: LocalOpenAI, watch: Watch, many: int) -> None:
    watch.stop()
    ways = [way for way in SYNC_WAYS if way is not leave_by_timeout]
    # One of them waits until its own row runs, which it cannot tell from one that is just leaving.
    aways = [way for way in ASYNC_WAYS if way not in (aleave_by_timeout, aleave_by_cancelling_a_call)]

    async def async_rounds(n: int) -> None:
        async with AsyncLocalOpenAI(inside.runtime(client).sources[""].path) as shared:
            for i in range(n):
                await aways[i % len(aways)](shared)

    def rounds(n: int) -> None:
        for i in range(n // 2):
            ways[i % len(ways)](client)
        asyncio.run(async_rounds(n // 2))
        assert eventually(lambda: watch.engine.stats().running + watch.engine.stats().waiting == 0)
        gc.collect()

    rounds(many // 2)  # fills MLX's and the allocator's caches
    threads, memory = threading.active_count(), resident_kilobytes()
    rounds(many)
    assert threading.active_count() <= threads
    assert resident_kilobytes() - memory < 20_000
    assert not inside.loop(watch.engine).tickets
