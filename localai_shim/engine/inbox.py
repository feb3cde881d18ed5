"""Messages of other threads to the engine thread, and the last events of requests that it leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..threads.system import Future, SimpleQueue
from ..types import Event, Failure, Sink, Ticket, Work, log
from .costs.cost_model import Stopwatch

SECONDS_PER_STEP = 0.005  # that rows wait for pieces of changes; one piece at least is made, a few layers' part


@dataclass(slots=True)
class Submit:
    ticket: Ticket
    works: Sequence[Work]
    sink: Sink

    def fail(self, error: Exception) -> None:
        """Give each piece of work its last event; consumers may be gone."""
        for index in range(len(self.works)):
            put_last(self.sink, index, Failure(error))


@dataclass(slots=True)
class Change:
    """A change of the model or of what belongs to it, between two steps. Its errors are its caller's."""

    apply: Callable[[], Iterator[None] | None]
    """Makes all of it, or returns the pieces that make it, with steps in between."""
    done: Future[None]
    _pieces: Iterator[None] | None = None

    def apply_piece(self) -> bool:
        """Make all of it, or its next piece; True if pieces are left."""
        try:
            if self._pieces is not None:
                left = next(self._pieces, self) is None
            elif not self.done.set_running_or_notify_cancel():
                return False
            else:
                self._pieces = self.apply()
                left = self._pieces is not None
            if left:
                return True
            self.done.set_result(None)
        except BaseException as error:
            self.done.set_exception(error)
        return False

    def fail(self, error: Exception) -> None:
        if self._pieces is not None or self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)


class Changes:
    """Those whose pieces are not all made; one is made after the other. On the engine thread, except for `fail`."""

    def __init__(self) -> None:
        self._waiting = deque[Change]()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, change: Change) -> None:
        """Make a change now, or have its pieces made."""
        if change.apply_piece():
            self._waiting.append(change)

    def run(self) -> None:
        """Make the next pieces."""
        watch = Stopwatch()
        while self._waiting:
            if not self._waiting[0].apply_piece():
                self._waiting.popleft()
            if watch.seconds >= SECONDS_PER_STEP:
                return

    def fail(self, error: Exception) -> None:
        """Fail all of them."""
        while self._waiting:
            self._waiting.popleft().fail(error)


Message = Submit | Change | Ticket | None
"""Work, a change, what is cancelled, or nothing: look if the engine is closing."""
Inbox = SimpleQueue[Message]


def put_last(sink: Sink, index: int, event: Event) -> None:
    """Put a request's last event into its sink, whose consumer may be gone."""
    try:
        sink.put(index, event)
        if sink.waker is not None:
            sink.waker.wake()
    except BaseException:
        log.debug("a consumer was gone before its engine ended", exc_info=True)
