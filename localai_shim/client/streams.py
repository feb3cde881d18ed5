"""A request that is running, as its consumer sees it: an explicit sync/async pair.

A generation leaves the engine when it is closed, dropped, cancelled or times out.
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

from ..endpoints.assembler import Assembler
from ..endpoints.prepared import AnyAssembler
from ..engine.sinks import AsyncSink, SyncSink, make_async_sink
from ..errors import RequestError
from ..runtime.offload import aside, run_to_end
from ..sdk.event_stream import AnyResponse
from ..threads.system import make_turn
from ..types import EngineClosedError, EngineLike, Event, Failure, Sink, Ticket, Token, Work
from .call import Call

if TYPE_CHECKING:
    from ..endpoints.prepared import BackgroundRun, Prepared
    from ..endpoints.responses.stored import StoredEvents

    Followable = BackgroundRun | StoredEvents

Ended = Callable[[BaseException | None], None]
"""Takes what went wrong, if something did."""
SinkT = TypeVar("SinkT", SyncSink, AsyncSink)


def _closed() -> Failure:
    """Failure for the reader of a stream that somebody else has closed."""
    return Failure(EngineClosedError("the stream was closed while it was read"))


# -- tokens ---------------------------------------------------------------------------------------------------------


class _Generation(Generic[SinkT]):
    """Parts that both share: the ticket, and leaving the engine exactly once."""

    _ticket: Ticket | None = None

    def __init__(self, engine: EngineLike | _Followed, works: Sequence[Work], sink: SinkT) -> None:
        self._engine = engine
        self.sink: SinkT = sink
        self._open, self._ticket = len(works), Ticket()
        try:
            engine.submit(works, sink, self._ticket)
        except BaseException:  # that of Ctrl-C may come when the work is with the engine already
            self.cancel()
            raise

    def cancel(self) -> None:
        """Leave the engine; nothing happens if the last token has come already."""
        ticket = self._ticket
        if ticket is not None and self._open:
            self._engine.cancel(ticket)
        self._ticket = None  # last: who is interrupted before it cancels again

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # by then engines have stopped, and modules are empty
            self.cancel()

    def _take(self, index: int, event: Event) -> tuple[int, Token]:
        """Count a choice's last token, or the end of what is followed; raise its failure, and end all with it."""
        if isinstance(event, Failure):
            self._open -= 1
            self.cancel()
            raise event.error
        if event is None or (isinstance(event, Token) and event.finish_reason is not None):
            self._open -= 1
        return index, event


class SyncGeneration(_Generation[SyncSink]):
    """Tokens of a submission, for a thread."""

    def next(self, timeout: float | None) -> tuple[int, Token]:
        """The next token, with the index of its request.

        Raises:
            TimeoutError: none came within `timeout` seconds; the rows have left the engine.
            EngineError: the request failed.
        """
        try:
            index, event = self.sink.get(timeout)
        except BaseException:
            self.cancel()
            raise
        if type(event) is Token and event.finish_reason is None:
            return index, event
        return self._take(index, event)

    def interrupt(self) -> None:
        """Leave the engine, and have a thread that waits in `next` get an EngineClosedError."""
        self.cancel()
        self.sink.put(0, _closed())


class AsyncGeneration(_Generation[AsyncSink]):
    """Tokens of a submission, for the task that made the sink. May be made on another thread."""

    async def next(self, timeout: float | None) -> tuple[int, Token]:
        """Async form of `SyncGeneration.next`."""
        try:
            while not self.sink.ready:
                await self.sink.wait(timeout)
            return self.pop()
        except BaseException:
            self.close()
            raise

    def pop(self) -> tuple[int, Token]:
        """The next token, when the sink is `ready`. Whatever it raises, `close` is to be called."""
        index, event = self.sink.pop()
        if type(event) is Token and event.finish_reason is None:
            return index, event
        taken = self._take(index, event)
        if not self._open:
            self.sink.close()
        return taken

    def interrupt(self) -> None:
        """Have a task that is in `wait` get an EngineClosedError. Runs on the event loop."""
        self.sink.put(0, _closed())
        self.sink.notify()

    def close(self) -> None:
        """Leave the engine, from the event loop."""
        self.sink.close()
        self.cancel()


# -- chunks of an answer --------------------------------------------------------------------------------------------

_SHARED = "another task is reading this stream: one at a time can"
_RAISED = (TimeoutError, EngineClosedError, RequestError, openai.OpenAIError)
GenerationT = TypeVar("GenerationT", SyncGeneration, AsyncGeneration)


class _Events(Generic[GenerationT]):
    """Chunks of a streamed answer. `ended` is called once: on completion, on failure, or when the reader leaves."""

    def __init__(self, generation: GenerationT, assembler: AnyAssembler, call: Call, ended: Ended) -> None:
        self._generation: GenerationT = generation
        self._ended, self._fail = ended, call.fail_amid_stream
        self._save = partial(call.save, assembler, call.timeout)  # in no more time than a chunk may take
        self._assembler, self._timeout = assembler, call.timeout
        self._ready: deque[BaseModel] = deque(assembler.begin())
        self._closed = False
        self._turn = make_turn()

    def _last(self, error: BaseException) -> Sequence[BaseModel]:
        """The events by which a stream says that its answer failed; raises where the consumer gets an exception."""
        if isinstance(error, Exception) and not isinstance(error, _RAISED) and not self._assembler.finished:
            events = self._assembler.fail(error)
            if events is not None:
                return events
        self._fail(error)

    def _drop(self) -> None:
        self._ended(GeneratorExit())
        self._closed = True
        self._ready.clear()


class SyncEvents(_Events[SyncGeneration]):
    """Chunks of a streamed answer, for threads: those that share one take turns."""

    def __iter__(self) -> SyncEvents:
        return self

    def __next__(self) -> object:
        ready = self._ready
        with self._turn:
            while not ready:
                if self._closed or self._assembler.finished:
                    raise StopIteration
                try:
                    index, token = self._generation.next(self._timeout)
                    events = self._assembler.feed(index, token)
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
        """Leave the engine; what was not read is dropped. Another thread may be reading."""
        self._drop()
        self._generation.interrupt()


class AsyncEvents(_Events[AsyncGeneration]):
    """Async form of `SyncEvents`, for one task at a time."""

    _waiting = False

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> object:
        ready, generation = self._ready, self._generation
        sink = generation.sink
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
                index, token = generation.pop()
                events = self._assembler.feed(index, token)
                if len(events) == 1 and not self._assembler.finished:
                    return events[0]
                if self._assembler.finished:
                    await self._save_elsewhere()
                    self._ended(None)
            except BaseException as error:
                self._waiting = False
                self._ended(error)
                self.close()
                generation.close()
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
        """Leave the engine; what was not read is dropped."""
        self._drop()
        self._generation.cancel()

    async def aclose(self) -> None:
        """Async form of `close`; another task may be reading."""
        self.close()
        if self._waiting:
            self._generation.interrupt()
        self._generation.close()


# -- answers -------------------------------------------------------------------------------------------------------


def answer(call: Call, prepared: Prepared, generation: SyncGeneration) -> AnyResponse:
    """The whole answer of a request, or a stream of it. Where that fails, its rows leave the engine."""
    assembler = prepared.assembler
    try:
        if prepared.stream:
            return call.streamed(SyncEvents(generation, assembler, call, call.ended))
        while not assembler.finished:
            assembler.collect(*generation.next(call.deadline.left()))
        call.save(assembler)
        return call.whole(assembler.result())
    except BaseException:
        generation.cancel()  # now: who keeps the exception keeps this frame
        raise


async def answer_async(call: Call, prepared: Prepared, generation: AsyncGeneration, *, waited: bool) -> AnyResponse:
    """Async form of `answer`; `waited`: the task has waited for something."""
    assembler, sink = prepared.assembler, generation.sink
    try:
        if prepared.stream:
            if not waited:
                await anyio.lowlevel.checkpoint()
            return call.streamed(AsyncEvents(generation, assembler, call, call.ended))
        while not assembler.finished:
            assembler.collect(*(generation.pop() if sink.ready else await generation.next(call.deadline.left())))
        if assembler.keeps:
            await run_to_end(partial(call.save, assembler))
        return call.whole(assembler.result())
    except BaseException:
        generation.close()
        raise


# -- events of a response in the background -------------------------------------------------------------------------


class _Followed:
    """A response in the background in the place of an engine: leaving it does not stop it."""

    def __init__(self, source: Followable, after: int) -> None:
        self._source, self._after = source, after

    def submit(self, works: Sequence[Work], sink: Sink, ticket: Ticket) -> Ticket:
        self._sink = sink
        self._source.follow(sink, self._after)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        self._source.leave(self._sink)


class _Passed(Assembler[BaseModel]):
    """Takes events that were made already, and None behind the last one."""

    def feed(self, index: int, token: Any) -> Sequence[BaseModel]:
        self.finished = token is None
        return () if token is None else (token,)


_FOLLOWING = (Work(),)
"""One stream of events."""


def _unheard(error: BaseException | None) -> None:
    """Tell nobody that a reader has left: the response goes on."""


def follow(call: Call, source: Followable, after: int = -1) -> AnyResponse:
    """The events of a response in the background that come behind one, for threads."""
    made = partial(SyncGeneration, _Followed(source, after), _FOLLOWING, SyncSink())
    generation = aside(made)  # which may wait until the response's last event is stored
    return call.streamed(SyncEvents(generation, _Passed(), call, _unheard))


def follow_async(call: Call, source: Followable, after: int = -1) -> AnyResponse:
    """Async form of `follow`."""
    generation = AsyncGeneration(_Followed(source, after), _FOLLOWING, make_async_sink())
    return call.streamed(AsyncEvents(generation, _Passed(), call, _unheard))
