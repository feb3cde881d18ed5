"""Turns: the result of every endpoint that runs a model, its assembler, and the loop in which each consumer runs it.

A turn has rounds. In each an engine runs works, and the assembler takes their tokens. Most answers are finished then.
For others the assembler does something else, such as calling a function of the caller's program, and returns further
works: the same answer continues.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from openai import BaseModel

from ..threads.deadline import Deadline, Overdue, computing
from ..threads.panics import panics_are_errors
from ..threads.system import Future
from ..threads.workers import Workers
from ..types import EngineClosedError, EngineLike, Event, Failure, Sink, Ticket, Token, Work

Answer = TypeVar("Answer", bound=BaseModel | str, covariant=True)


class Round(NamedTuple):
    """Continuation of a turn behind a round, see `Assembler.next_round`."""

    events: Sequence[BaseModel] = ()
    """Events of a stream that were made since the round ended."""
    works: Sequence[Work] = ()
    """Works of the next round; empty: the answer has ended, or `next_round` is called again for more events."""
    ends: bool = False
    """The answer has ended: it has `finished` when its reader takes the events."""


class Assembler(Generic[Answer]):
    """Makes an answer of tokens: `begin`, `feed` and `fail` for streams, `collect` and `result` for whole ones.

    Args:
        keep: stores the finished answer; may block. None: it is not to be stored.

    Attributes:
        finished: the answer has ended, and no token is taken any more.
        decoded: what the SDK would decode of the answer is made as it would be then.
        media_type: type of the bytes that the answer is, and whose pieces are the events; None: it is an object.
    """

    finished = False
    decoded = False
    media_type: str | None = None

    def __init__(self, keep: Callable[[Answer], None] | None = None) -> None:
        self._keep = keep

    @property
    def keeps(self) -> bool:
        """`save` does something."""
        return self._keep is not None

    def begin(self) -> Sequence[BaseModel]:
        """A stream's events before the first token."""
        return ()

    def feed(self, index: int, token: Token) -> Sequence[BaseModel]:
        """Take the next token of a choice; returns a stream's events that it makes."""
        raise NotImplementedError

    def collect(self, index: int, token: Token) -> None:
        """Take the next token of a choice, when the answer is wanted whole."""
        raise NotImplementedError

    def next_round(self) -> Round:
        """Go on when all works of a round have ended and the answer has not `finished`.

        Runs on a thread that may wait. What it raises fails the answer. It must not set `finished`: the reader, on
        another thread, would miss the events. `Round.ends` says so.
        """
        raise RuntimeError("all rows of this request have ended, and its answer has not")

    def fail(self, error: Exception) -> Sequence[BaseModel] | None:
        """End a stream with an error; its last events, or None where the consumer gets an exception."""
        return None

    def finish_reasons(self) -> tuple[str, ...]:
        """Endings of the answer's choices, in the words of chat.completions; empty before it has ended."""
        return ()

    @property
    def reasoning_tokens(self) -> int:
        """Output tokens so far that are no part of the content."""
        return 0

    def result(self) -> Answer:
        """The whole answer, once `finished`."""
        raise NotImplementedError

    def save(self) -> None:
        """Store the answer, if it is to be stored."""
        if self._keep is not None:
            self._keep(self.result())


AnyAssembler = Assembler[BaseModel | str]
"""Assembler of any answer: an object of the SDK, or a text."""
TurnEvent = Event | Future[Round]
"""An event of a turn's sink: of its works, or what follows a round."""
_between = Workers("between_rounds")


class EventSink(Sink, Protocol):
    """Sink of a consumer, which gets more than an engine's events."""

    def put(self, index: int, event: Any) -> None: ...


class Turn:
    """A validated request and its answer in the making.

    A consumer starts it with a sink, gives it each event of this sink until its assembler has `finished`, and leaves it
    otherwise. A turn that is dropped is left.

    Args:
        assembler: makes the answer.
        works: those of the first round; empty: the assembler makes them, see `Assembler.next_round`.
        stream: the caller takes the answer in events.
        background: makes the `Run` of a response that continues without its caller; None: the caller takes the answer.

    Attributes:
        rounds: the works of each round so far.
        stage: called before each round is submitted but the first: a test's engine may see it.
    """

    _engine: EngineLike
    _sink: EventSink
    _wake_at_end: Callable[[int], None] | None
    _ticket: Ticket | None = None
    _deadline: Deadline | None = None  # as long as Ctrl-C may come before there is one
    _open = 0
    _left = False

    def __init__(
        self,
        assembler: AnyAssembler,
        works: Sequence[Work] = (),
        stream: bool = False,
        background: Callable[[Turn], object] | None = None,
    ) -> None:
        self.assembler, self.stream, self.background = assembler, stream, background
        self.rounds: list[Sequence[Work]] = [works]
        self.stage: Callable[[Turn], object] | None = None
        self._priority = 0
        self._deadline = Deadline()

    @property
    def works(self) -> Sequence[Work]:
        """Those of this round."""
        return self.rounds[-1]

    def defer(self, priority: int) -> None:
        """Add to the priority of its works, also of later rounds: those of others are more urgent."""
        self._priority = priority
        for work in self.works:
            work.priority += priority

    def start(self, engine: EngineLike, sink: EventSink, wake_at_end: Callable[[int], None] | None = None) -> None:
        """Submit this round to an engine, also again after the engine refused it.

        Args:
            sink: gets the events of all rounds.
            wake_at_end: the sink's, where the answer is wanted whole: takes the number of works before each round.

        Raises:
            EngineError: the engine takes none, or no more.
        """
        self._engine, self._sink, self._wake_at_end = engine, sink, wake_at_end
        if self.works or self.assembler.finished:
            self._submit()
        else:  # its reader begins the first round, as what comes before the first token has to come first
            found: Future[Round] = Future()
            found.set_result(Round())
            _put_found(sink, found)

    def feed(self, index: int, event: TurnEvent) -> Sequence[BaseModel]:
        """Take an event of the sink; returns a stream's events that it makes.

        Raises:
            Exception: what the engine, or the work between two rounds, failed with. The turn is to be left.
        """
        if type(event) is not Token:
            return self._follow(event)
        events = self.assembler.feed(index, event)
        if event.finish_reason is not None:
            self._end_work()
        return events

    def collect(self, index: int, event: TurnEvent) -> None:
        """Take an event of the sink, when the answer is wanted whole. Raises as `feed` does."""
        if type(event) is not Token:
            self._follow(event)
            return
        self.assembler.collect(index, event)
        if event.finish_reason is not None:
            self._end_work()

    def leave(self) -> None:
        """Leave the engine; nothing happens if the last event has come already. Any thread may call this."""
        self._left = True
        if self._deadline is not None:
            self._deadline.abandon()
        self._cancel()

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # by then engines have stopped, and modules are empty
            self.leave()

    # -- rounds -------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        ticket = self._ticket = Ticket()
        self._open = len(self.works)
        if self._wake_at_end is not None:
            self._wake_at_end(self._open)
        try:
            self._engine.submit(self.works, self._sink, ticket)
        except BaseException:  # that of Ctrl-C may come when the work is with the engine already
            self._cancel()
            raise
        if self._left:  # by another thread, which may have cancelled what was not with the engine yet
            self._engine.cancel(ticket)

    def _cancel(self) -> None:
        if self._ticket is not None and self._open:
            self._engine.cancel(self._ticket)
        self._ticket = None  # last: who is interrupted before it cancels again

    def _end_work(self) -> None:
        """One piece of a round's work has ended; behind the last one comes what follows the round."""
        self._open -= 1
        if not self._open and not self.assembler.finished:
            self._go_on()

    def _go_on(self) -> None:
        """Let the assembler make the next round, on a thread that may wait. The sink gets the result."""
        assert self._deadline is not None
        found = _between.submit(partial(_next_round, self.assembler, self._deadline))
        found.add_done_callback(partial(_put_found, self._sink))

    def _follow(self, event: TurnEvent) -> Sequence[BaseModel]:
        """Begin the next round, or raise what went wrong."""
        assert not isinstance(event, Token)
        if isinstance(event, Failure):
            self._open -= 1
            raise event.error
        events, works, ends = event.result()
        if ends:
            self.assembler.finished = True
        elif works:
            self.rounds.append(works)
            self.defer(self._priority)
            if self.stage is not None:
                self.stage(self)
            self._submit()
        else:
            self._go_on()
        return events


@panics_are_errors
def _next_round(assembler: AnyAssembler, deadline: Deadline) -> Round:
    try:
        with computing(deadline):
            deadline.check()
            return assembler.next_round()
    except Overdue:  # the turn was left, or the interpreter ends
        raise EngineClosedError("the interpreter is ending") from None
    except SystemExit as error:  # it would end the thread that reads this
        raise RuntimeError(f"{error!r} was raised while the answer was made") from error


def _put_found(sink: EventSink, found: Future[Round]) -> None:
    put_events(sink, [found])


def put_events(sink: EventSink, events: Sequence[object]) -> None:
    """Have a sink get events, and its reader woken."""
    for event in events:
        sink.put(0, event)
    if sink.waker is not None and events:
        with contextlib.suppress(RuntimeError):  # its event loop has ended
            sink.waker.wake()
