"""A request that is running, as its consumer sees it: an explicit sync/async pair.

A turn leaves the engine when it is closed, dropped, cancelled or times out.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio.lowlevel
import openai
from openai import BaseModel

from ..endpoints.turn import Assembler
from ..engine.sinks import AsyncSink, SyncSink, make_async_sink
from ..errors import RequestError
from ..runtime.offload import aside, run_to_end
from ..sdk.event_stream import AnyResponse
from ..threads.system import make_held_lock
from ..types import EngineClosedError, EngineLike, Failure
from .call import Call

if TYPE_CHECKING:
    from ..endpoints.responses.background import Run
    from ..endpoints.responses.stored import StoredEvents
    from ..endpoints.turn import Turn

    Followable = Run | StoredEvents

Ended = Callable[[BaseException | None], None]
"""Takes what went wrong, if something did."""
SinkT = TypeVar("SinkT", SyncSink, AsyncSink)


def start(turn: Turn, engine: EngineLike, sink: SyncSink | AsyncSink) -> None:
    """Start a turn on an engine. The reader of a whole answer wakes at the end of each round."""
    turn.start(engine, sink, None if turn.stream else sink.wake_at_end)


# -- chunks of an answer --------------------------------------------------------------------------------------------

_SHARED = "another task is reading this stream: one at a time can"
_RAISED = (TimeoutError, EngineClosedError, RequestError, openai.OpenAIError)


class _Events(Generic[SinkT]):
    """Chunks of a streamed answer. `ended` is called once: on completion, on failure, or when the reader leaves."""

    def __init__(self, turn: Turn | _Following, sink: SinkT, call: Call, ended: Ended) -> None:
        self._turn, self._assembler = turn, turn.assembler
        self._sink: SinkT = sink
        self._ended, self._fail, self._timeout = ended, call.fail_amid_stream, call.timeout
        self._save = partial(call.save, turn.assembler, call.timeout)  # in no more time than a chunk may take
        self._ready: deque[BaseModel] = deque(turn.assembler.begin())
        self._closed = False

    def _last(self, error: BaseException) -> Sequence[BaseModel]:
        """The events by which a stream says that its answer failed; raises where the consumer gets an exception."""
        if isinstance(error, Exception) and not isinstance(error, _RAISED) and not self._assembler.finished:
            events = self._assembler.fail(error)
            if events is not None:
                return events
        try:
            self._fail(error)
        finally:
            del error  # which holds this frame, and so the turn

    def _drop(self) -> None:
        self._ended(GeneratorExit())
        self._closed = True
        self._ready.clear()
        self._turn.leave()

    def _interrupt(self) -> None:
        """Have a reader that waits get an EngineClosedError."""
        self._sink.put(0, Failure(EngineClosedError("the stream was closed while it was read")))


class SyncEvents(_Events[SyncSink]):
    """Chunks of a streamed answer, for threads: those that share one read it by turns."""

    def __init__(self, turn: Turn | _Following, sink: SyncSink, call: Call, ended: Ended) -> None:
        super().__init__(turn, sink, call, ended)
        self._reading = make_held_lock()

    def __iter__(self) -> SyncEvents:
        return self

    def __next__(self) -> object:
        ready = self._ready
        with self._reading:
            while not ready:
                if self._closed or self._assembler.finished:
                    raise StopIteration
                try:
                    events = self._turn.feed(*self._sink.get(self._timeout))
                    if len(events) == 1 and not self._assembler.finished:
                        return events[0]
                    if self._assembler.finished:
                        self._save()
                        self._ended(None)
                except BaseException as error:
                    self._ended(error)
                    self.close()
                    events = self._last(error)
                    try:
                        self._save()
                    except BaseException as unsaved:
                        self._fail(unsaved)
                ready.extend(events)
            try:
                return ready.popleft()
            except IndexError:  # another thread has closed the stream since there was one
                raise StopIteration from None

    def close(self) -> None:
        """Leave the engine; unread events are dropped. Another thread may be reading."""
        self._drop()
        self._interrupt()


class AsyncEvents(_Events[AsyncSink]):
    """Async form of `SyncEvents`, for one task at a time."""

    _waiting = False

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> object:
        ready, sink = self._ready, self._sink
        while not ready:
            if self._closed or self._assembler.finished:
                raise StopAsyncIteration
            if self._waiting:
                raise RuntimeError(_SHARED)
            try:
                while not sink.ready:
                    self._waiting = True
                    await sink.wait(self._timeout)
                    self._waiting = False
                events = self._turn.feed(*sink.pop())
                if len(events) == 1 and not self._assembler.finished:
                    return events[0]
                if self._assembler.finished:
                    sink.close()
                    await self._save_elsewhere()
                    self._ended(None)
            except BaseException as error:
                self._waiting = False
                self._ended(error)
                self.close()
                sink.close()
                events = self._last(error)
                try:
                    await self._save_elsewhere()
                except BaseException as unsaved:
                    self._fail(unsaved)
            ready.extend(events)
        return ready.popleft()

    async def _save_elsewhere(self) -> None:
        """Do what `_save` does, off the event loop."""
        if self._assembler.keeps:
            await run_to_end(self._save)

    def close(self) -> None:
        """Leave the engine; unread events are dropped."""
        self._drop()

    async def aclose(self) -> None:
        """Async form of `close`; another task may be reading."""
        self.close()
        if self._waiting:
            self._interrupt()
            self._sink.notify()
        self._sink.close()


# -- answers -------------------------------------------------------------------------------------------------------


def answer(call: Call, turn: Turn, sink: SyncSink) -> AnyResponse:
    """The whole answer of a turn that was started, or a stream of it. Where that fails, the turn leaves the engine."""
    assembler = turn.assembler
    try:
        if turn.stream:
            return call.streamed(SyncEvents(turn, sink, call, call.ended), assembler.media_type)
        while not assembler.finished:
            turn.collect(*sink.get(call.deadline.left()))
        call.save(assembler)
        return call.whole(assembler.result())
    except BaseException:
        turn.leave()  # now: who keeps the exception keeps this frame
        raise


async def answer_async(call: Call, turn: Turn, sink: AsyncSink, *, waited: bool) -> AnyResponse:
    """Async form of `answer`; `waited`: the task has waited for something."""
    assembler = turn.assembler
    try:
        if turn.stream:
            if not waited:
                await anyio.lowlevel.checkpoint()
            return call.streamed(AsyncEvents(turn, sink, call, call.ended), assembler.media_type)
        while not assembler.finished:
            while not sink.ready:
                await sink.wait(call.deadline.left())
            turn.collect(*sink.pop())
        sink.close()
        if assembler.keeps:
            await run_to_end(partial(call.save, assembler))
        return call.whole(assembler.result())
    except BaseException:
        sink.close()
        turn.leave()
        raise


# -- events of a response in the background -------------------------------------------------------------------------


class _Following(Assembler[BaseModel]):
    """Events of a background response after a given one. The response continues when its reader leaves."""

    def __init__(self, source: Followable, after: int) -> None:
        super().__init__()
        self._source, self._after = source, after
        self._sink: SyncSink | AsyncSink | None = None

    @property
    def assembler(self) -> Assembler[BaseModel]:
        return self

    def start(self, sink: SinkT) -> SinkT:
        self._sink = sink
        self._source.follow(sink, self._after)
        return sink

    def feed(self, index: int, event: Any) -> Sequence[BaseModel]:
        """Take an event, or None behind the last one."""
        if type(event) is Failure:  # the stream was closed
            raise event.error
        self.finished = event is None
        return () if event is None else (event,)

    def leave(self) -> None:
        if self._sink is not None:
            self._source.leave(self._sink)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            self.leave()


def _unheard(error: BaseException | None) -> None:
    """Do nothing when a reader has left: the response continues."""


def follow(call: Call, source: Followable, after: int = -1) -> AnyResponse:
    """The events of a response in the background that come behind one, for threads."""
    following = _Following(source, after)
    sink = aside(partial(following.start, SyncSink()))  # which may wait until the response's last event is stored
    return call.streamed(SyncEvents(following, sink, call, _unheard))


def follow_async(call: Call, source: Followable, after: int = -1) -> AnyResponse:
    """Async form of `follow`."""
    following = _Following(source, after)
    return call.streamed(AsyncEvents(following, following.start(make_async_sink()), call, _unheard))
