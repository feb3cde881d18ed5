"""A request that is running, as its consumer sees it: an explicit sync/async pair.

A generation leaves the engine when it is closed, dropped, cancelled or times out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import openai

from .engine.sinks import AsyncSink, SyncSink
from .errors import RequestError
from .types import EngineClosedError, EngineLike, Event, Failure, GenerationRequest, Ticket, Token


def _closed() -> Failure:
    """What a reader gets whose stream somebody else has closed."""
    return Failure(EngineClosedError("the stream was closed while it was read"))


class _Generation:
    """What both share: the ticket, and leaving the engine exactly once."""

    _ticket: Ticket | None = None

    def __init__(self, engine: EngineLike, requests: Sequence[GenerationRequest], sink: SyncSink | AsyncSink) -> None:
        self._engine = engine
        self._ticket = engine.submit(requests, sink)
        self._open = len(requests)

    def cancel(self) -> None:
        """Leave the engine; nothing happens if all has been said already."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None and self._open:
            self._engine.cancel(ticket)

    __del__ = cancel

    def _take(self, index: int, event: Event) -> tuple[int, Token]:
        """Count a choice's last token; raise its failure, and end the other choices with it."""
        if not isinstance(event, Token):
            self._open -= 1
            self.cancel()
            raise event.error
        if event.finish_reason is not None:
            self._open -= 1
        return index, event


class SyncGeneration(_Generation):
    """Tokens of a submission, for a thread."""

    def __init__(self, engine: EngineLike, requests: Sequence[GenerationRequest]) -> None:
        self._sink = SyncSink()
        super().__init__(engine, requests, self._sink)

    def next(self, timeout: float | None) -> tuple[int, Token]:
        """The next token, with the index of its request.

        Raises:
            TimeoutError: none came within `timeout` seconds; the rows have left the engine.
            EngineError: the request failed.
        """
        try:
            index, event = self._sink.get(timeout)
        except BaseException:
            self.cancel()
            raise
        if type(event) is Token and event.finish_reason is None:
            return index, event
        return self._take(index, event)

    def interrupt(self) -> None:
        """Leave the engine, and have a thread that waits in `next` get an EngineClosedError."""
        self.cancel()
        self._sink.put(0, _closed())


class AsyncGeneration(_Generation):
    """Tokens of a submission, for the task that made the sink. May be made on another thread."""

    def __init__(self, engine: EngineLike, requests: Sequence[GenerationRequest], sink: AsyncSink) -> None:
        self._sink = sink
        super().__init__(engine, requests, sink)

    async def next(self, timeout: float | None) -> tuple[int, Token]:
        """As `SyncGeneration.next`."""
        sink = self._sink
        try:
            if not sink.ready:
                await sink.wait(timeout)
            index, event = sink.pop()
            if type(event) is Token and event.finish_reason is None:
                return index, event
            return self._take(index, event)
        except BaseException:
            self.close()
            raise
        finally:
            if not self._open:
                sink.close()

    def interrupt(self) -> None:
        """Have a task that is in `wait` get an EngineClosedError. Runs on the event loop."""
        self._sink.put(0, _closed())
        self._sink.notify()

    def close(self) -> None:
        """Leave the engine, from the event loop."""
        self._sink.close()
        self.cancel()


_SHARED = "another task is reading this stream: one at a time can"
_RAISED = (TimeoutError, EngineClosedError, RequestError, openai.OpenAIError)


def _told(assembler: Any, error: BaseException) -> Sequence[Any] | None:
    """The events by which a stream says that its answer failed; None where the consumer gets an exception."""
    if not isinstance(error, Exception) or isinstance(error, _RAISED) or assembler.finished:
        return None
    told: Sequence[Any] | None = assembler.fail(error)
    return told


class SyncEvents:
    """Chunks of a streamed answer; `fail` turns what goes wrong into the SDK's exception.

    Threads that share one take turns.
    """

    def __init__(self, generation: SyncGeneration, assembler: Any, timeout: float | None, fail: Any) -> None:
        self._generation, self._assembler, self._timeout, self._fail = generation, assembler, timeout, fail
        self._ready: deque[Any] = deque(assembler.begin())
        self._closed = False
        self._turn = threading.Lock()

    def __iter__(self) -> SyncEvents:
        return self

    def __next__(self) -> Any:
        ready = self._ready
        with self._turn:
            while not ready:
                if self._closed or self._assembler.finished:
                    raise StopIteration
                try:
                    index, token = self._generation.next(self._timeout)
                    told = self._assembler.feed(index, token)
                    if token.finish_reason is None and len(told) == 1:
                        return told[0]
                    if self._assembler.finished:
                        self._assembler.save()
                    ready.extend(told)
                except BaseException as error:
                    self.close()
                    failed = _told(self._assembler, error)
                    if failed is not None:
                        self._assembler.save()
                        ready.extend(failed)
                        continue
                    failure = self._fail(error)
                    if failure is error:
                        raise
                    raise failure from error
            return ready.popleft()

    def close(self) -> None:
        """Leave the engine; what was not read is dropped. Another thread may be reading."""
        self._closed = True
        self._ready.clear()
        self._generation.interrupt()


class SyncFollowing:
    """The events of a response in the background; leaving does not stop it."""

    def __init__(self, source: Any, after: int, timeout: float | None, fail: Any) -> None:
        self._source, self._timeout, self._fail = source, timeout, fail
        self._sink = SyncSink()
        self._closed = False
        self._turn = threading.Lock()
        source.follow(self._sink, after)

    def __iter__(self) -> SyncFollowing:
        return self

    def __next__(self) -> Any:
        with self._turn:  # threads may share it
            if self._closed:
                raise StopIteration
            try:
                _, event = self._sink.get(self._timeout)
                if isinstance(event, Failure):
                    raise event.error
            except BaseException as error:
                self.close()
                failure = self._fail(error)
                if failure is error:
                    raise
                raise failure from error
            if event is None:
                self.close()
                raise StopIteration
            return event

    def close(self) -> None:
        """Follow no longer."""
        self._closed = True
        self._source.leave(self._sink)
        self._sink.put(0, _closed())  # another thread may be waiting

    __del__ = close


class AsyncFollowing:
    """As `SyncFollowing`, async."""

    def __init__(self, source: Any, after: int, timeout: float | None, fail: Any, sink: AsyncSink) -> None:
        self._source, self._timeout, self._fail, self._sink = source, timeout, fail, sink
        self._closed = self._waiting = False
        source.follow(sink, after)

    def __aiter__(self) -> AsyncFollowing:
        return self

    async def __anext__(self) -> Any:
        if self._closed:
            raise StopAsyncIteration
        if self._waiting:
            raise RuntimeError(_SHARED)
        try:
            if not self._sink.ready:
                self._waiting = True
                await self._sink.wait(self._timeout)
                self._waiting = False
            _, event = self._sink.pop()
            if isinstance(event, Failure):
                raise event.error
        except BaseException as error:
            self._waiting = False
            self.close()
            failure = self._fail(error)
            if failure is error:
                raise
            raise failure from error
        if event is None:
            self.close()
            raise StopAsyncIteration
        return event

    def close(self) -> None:
        """Follow no longer."""
        self._closed = True
        self._source.leave(self._sink)

    async def aclose(self) -> None:
        """As `close`; another task may be reading."""
        self.close()
        if self._waiting:
            self._sink.put(0, _closed())
            self._sink.notify()
        self._sink.close()

    __del__ = close


async def save(assembler: Any) -> None:
    """Keep a finished answer that is to be kept, off the event loop."""
    if assembler.keeps:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(assembler.save)


class AsyncEvents:
    """As `SyncEvents`, async."""

    def __init__(self, generation: AsyncGeneration, assembler: Any, timeout: float | None, fail: Any) -> None:
        self._generation, self._assembler, self._timeout, self._fail = generation, assembler, timeout, fail
        self._ready: deque[Any] = deque(assembler.begin())
        self._closed = self._waiting = False

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Any:
        ready = self._ready
        while not ready:
            if self._closed or self._assembler.finished:
                raise StopAsyncIteration
            if self._waiting:
                raise RuntimeError(_SHARED)
            try:
                self._waiting = True
                index, token = await self._generation.next(self._timeout)
                self._waiting = False
                told = self._assembler.feed(index, token)
                if token.finish_reason is None and len(told) == 1:
                    return told[0]
                if self._assembler.finished:
                    await save(self._assembler)
                ready.extend(told)
            except BaseException as error:
                self._waiting = False
                self.close()
                failed = _told(self._assembler, error)
                if failed is not None:
                    await save(self._assembler)
                    ready.extend(failed)
                    continue
                failure = self._fail(error)
                if failure is error:
                    raise
                raise failure from error
        return ready.popleft()

    def close(self) -> None:
        """Leave the engine; what was not read is dropped."""
        self._closed = True
        self._ready.clear()
        self._generation.cancel()

    async def aclose(self) -> None:
        """As `close`; another task may be reading."""
        self.close()
        if self._waiting:
            self._generation.interrupt()
        self._generation.close()
