"""Many slow requests at once: streams go on, quick ones pass, and the application's own worker threads stay free."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import openai
import pytest
import sniffio

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, rerank
from localai_shim.models.text import TextTokenizer
from tests.endpoints.pictures import data_url, image_url, user
from tests.engine.harness import eventually
from tests.preparing import BACKENDS, LONG, LOOPS, MESSAGES, SOON, WAYS, Gate, ask_long, nobody_prepares
from tests.templates.models import make_model
from tests.tiny import tiny

SLOW = 12
"""Requests that are slow at once, more than are prepared at a time."""
MODEL: dict[str, Any] = {"max_position_embeddings": 40_000, "rms_norm_eps": 4.5e-6}


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture(scope="module")
def quick() -> Iterator[str]:
    """A model that is loaded."""
    path = str(tiny("qwen3", **MODEL))
    with LocalOpenAI(path) as client:
        ask_long(client)
        yield path


@pytest.fixture(scope="module")
def endless() -> Iterator[str]:
    """A model, loaded as well, whose chat template never ends, for all that anybody would wait."""
    folder = make_model(LOOPS + "{% for m in messages %}{{ m.content }}{% endfor %}")
    with LocalOpenAI(str(folder)) as client:
        WAYS["completions"](client)
        yield str(folder)
    shutil.rmtree(folder)


def rendering() -> int:
    """Threads that render a chat template."""
    stacks = (traceback.extract_stack(frame) for frame in sys._current_frames().values())
    return sum(any(call.name == "apply_chat_template" for call in stack) for stack in stacks)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_passes_templates_that_never_end(quick: str, endless: str, backend: str) -> None:
    """One with a long text, which needs a thread to be prepared, too."""

    async def main() -> None:
        async with (
            AsyncLocalOpenAI(quick) as client,
            AsyncLocalOpenAI(endless) as slow,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(SLOW):
                tasks.start_soon(partial(WAYS["chat"], slow, timeout=None))
            while rendering() < 2:
                await anyio.lowlevel.checkpoint()
            with anyio.fail_after(4 * SOON):  # they share the GIL with this one
                assert (await ask_long(client)).usage.completion_tokens == 2
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=backend)
    assert eventually(lambda: rendering() == 0)


def test_a_thread_s_request_passes_templates_that_never_end(quick: str, endless: str) -> None:
    with LocalOpenAI(quick) as client, LocalOpenAI(endless) as slow, ThreadPoolExecutor(SLOW) as pool:
        waiting = [pool.submit(WAYS["chat"], slow, timeout=15) for _ in range(SLOW)]
        assert eventually(lambda: rendering() == SLOW)
        assert ask_long(client, timeout=4 * SOON).usage.completion_tokens == 2
        assert all(isinstance(each.exception(), openai.APITimeoutError) for each in waiting)
    assert eventually(lambda: rendering() == 0)


# -- streams ---------------------------------------------------------------------------------------------------------


_seen = itertools.count()


def large() -> Any:
    """A message with a picture that nobody has decoded before."""
    return user("Look", image_url(data_url((next(_seen), 9, 0), width=5_000, height=5_000)))


async def gaps_while(work: Callable[[], Awaitable[None]], stream: Callable[[], Awaitable[Any]]) -> list[float]:
    """Seconds between the chunks of one stream after another while something else is done; see `tests.heartbeat`."""
    gaps, over = [], anyio.Event()

    async def read() -> None:
        while not over.is_set():
            chunks = await stream()
            last, computed = time.perf_counter(), time.process_time()
            async for _ in chunks:
                now, own = time.perf_counter(), time.process_time()
                gaps.append(min(now - last, own - computed))
                last, computed = now, own
                if over.is_set():
                    await chunks.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await work()
        over.set()
    return sorted(gaps)


@pytest.mark.timed
@pytest.mark.parametrize("backend", BACKENDS)
def test_streams_go_on_while_others_decode_large_pictures(backend: str) -> None:
    """And so do other tasks: no gap is half as long as one picture takes."""
    model: dict[str, Any] = {"model": "m", "max_tokens": 1}
    endless: dict[str, Any] = {"model": "m", "max_tokens": 1_500, "stream": True, "extra_body": {"ignore_eos": True}}

    async def main() -> None:
        async with AsyncLocalOpenAI("builtin:vision") as client:
            create = client.chat.completions.create
            await create(**model, messages=[user("Look", image_url(data_url()))])
            message, alone = large(), time.perf_counter()
            await create(**model, messages=[message])
            alone = time.perf_counter() - alone
            for _ in range(4):
                messages = [large() for _ in range(6)]

                async def others(messages: list[Any] = messages) -> None:
                    async with anyio.create_task_group() as tasks:
                        for each in messages:
                            tasks.start_soon(partial(create, **model, messages=[each]))

                gaps = await gaps_while(others, partial(create, **endless, messages=MESSAGES))
                assert len(gaps) > 20
                if gaps[-3] < alone / 2:
                    return
            pytest.fail(f"gaps of {gaps[-5:]} s where a picture takes {alone} s")

    anyio.run(main, backend=backend)


# -- the application's worker threads ----------------------------------------------------------------------------------


def fill_worker_threads(release: threading.Event, tasks: Any) -> list[Callable[[], bool]]:
    """Have all worker threads of the running event loop wait for an event: anyio's, and asyncio's own."""
    taken = [0]

    def wait() -> None:
        taken[0] += 1
        assert release.wait(120)

    limiter = anyio.to_thread.current_default_thread_limiter()
    wanted = int(limiter.total_tokens)
    for _ in range(wanted):
        tasks.start_soon(anyio.to_thread.run_sync, wait)
    if sniffio.current_async_library() == "asyncio":
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(3))
        for _ in range(4):
            loop.run_in_executor(None, wait)
        wanted += 3
    return [lambda: taken[0] == wanted]


async def ask_everything(client: AsyncLocalOpenAI) -> None:
    """Each kind of request, those that need no model included."""
    for ask in WAYS.values():
        await ask(client, timeout=60)
    await ask_long(client)
    stored = await client.responses.create(model="m", input=LONG[0]["content"], max_output_tokens=16, store=True)
    assert (await client.responses.retrieve(stored.id)).id == stored.id
    assert [item.type async for item in await client.responses.input_items.list(stored.id)] == ["message"]
    kept = await client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=2, store=True)
    assert (await client.chat.completions.retrieve(kept.id)).id == kept.id
    made = await client.conversations.create()
    await client.conversations.delete(made.id)
    assert (await client.models.list()).data
    file = await client.files.create(file=("a.jsonl", b"{}"), purpose="batch")
    assert (await client.files.content(file.id)).content == b"{}"
    assert (await rerank(client, "Who?", ["I", "You"])).results
    job = await client.responses.create(model="m", input="Hello", max_output_tokens=16, background=True)
    async for _ in await client.responses.retrieve(job.id, stream=True):
        pass


@pytest.mark.parametrize("backend", BACKENDS)
def test_requests_go_on_where_the_application_needs_all_worker_threads(quick: str, backend: str) -> None:
    async def main() -> None:
        release = threading.Event()
        async with AsyncLocalOpenAI(quick) as client, anyio.create_task_group() as tasks:
            full = fill_worker_threads(release, tasks)
            try:
                while not all(each() for each in full):
                    await anyio.lowlevel.checkpoint()
                with anyio.fail_after(4 * SOON):
                    await ask_everything(client)
            finally:
                release.set()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_worker_threads_are_free_while_requests_are_slow(quick: str, gate: Gate, backend: str) -> None:
    """As many as the application may have, while more requests than that are prepared by what cannot be interrupted."""
    encode = TextTokenizer.encode

    def held(self: Any, *args: Any, **more: Any) -> Any:
        gate()
        return encode(self, *args, **more)

    async def main() -> None:
        answers: list[Any] = []
        release = threading.Event()

        async def one() -> None:
            answers.append(await ask_long(client))

        async with AsyncLocalOpenAI(quick, max_queue=100) as client, anyio.create_task_group() as tasks:
            await ask_long(client)  # its model is loaded
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TextTokenizer, "encode", held)
                for _ in range(50):
                    tasks.start_soon(one)
                assert await anyio.to_thread.run_sync(lambda: eventually(lambda: gate.inside >= SLOW))
                with anyio.fail_after(SOON):
                    full = fill_worker_threads(release, tasks)
                    while not all(each() for each in full):
                        await anyio.lowlevel.checkpoint()
                    release.set()
                assert not answers
            gate.open.set()
        assert len(answers) == 50

    anyio.run(main, backend=backend)
    assert eventually(nobody_prepares)
