"""The least that a chunk of many streams can take of an event loop's thread: waking a task, and the SDK's types."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta

from .bare import BareModel
from .workload import Prompt, Prompts


def least_cost(bare: BareModel, prompts: Prompts, streams: int, new_tokens: int) -> tuple[float, float]:
    """CPU seconds per chunk of a thread whose tasks are woken once per bare decode step on another thread.

    Returns:
        Waking a task that waits for a future; the same with a chunk made of the SDK's types. No client is involved.
    """
    chosen = prompts.take(2 * streams)
    nothing = _cost(bare, chosen[:streams], new_tokens, lambda: None)
    return nothing, _cost(bare, chosen[streams:], new_tokens, _chunk)


def _chunk() -> ChatCompletionChunk:
    choice = Choice(index=0, delta=ChoiceDelta(content="word"), finish_reason=None)
    return ChatCompletionChunk(
        id="chatcmpl-1", choices=[choice], created=1, model="bench", object="chat.completion.chunk"
    )


def _cost(bare: BareModel, prompts: Sequence[Prompt], steps: int, make: Callable[[], object]) -> float:
    readers = Readers(len(prompts), steps, make)
    thread = threading.Thread(target=lambda: asyncio.run(readers.run()))
    thread.start()
    readers.ready.wait()
    bare.prefill(prompts).decode(steps, readers.step_done)
    thread.join()
    return readers.seconds / (steps * len(prompts))


class Readers:
    """Tasks that each read one item per step, on an event loop of another thread than the steps'."""

    def __init__(self, count: int, steps: int, make: Callable[[], object]) -> None:
        self._steps, self._make = steps, make
        self._unread = [0] * count
        self._waiting: list[asyncio.Future[None] | None] = [None] * count
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ready = threading.Event()
        self.seconds = 0.0
        """CPU time of the thread."""

    def step_done(self) -> None:
        """Wake all tasks; on the steps' thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._wake)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready.set()
        start = time.thread_time()
        await asyncio.gather(*(self._read(i) for i in range(len(self._unread))))
        self.seconds = time.thread_time() - start

    def _wake(self) -> None:
        for i, future in enumerate(self._waiting):
            self._unread[i] += 1
            if future is not None and not future.done():
                future.set_result(None)

    async def _read(self, i: int) -> None:
        assert self._loop is not None
        for _ in range(self._steps):
            while not self._unread[i]:
                future = self._waiting[i] = self._loop.create_future()
                await future
            self._unread[i] -= 1
            self._make()
