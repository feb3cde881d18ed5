"""Messages of other threads to the engine thread, and the last events of requests that it leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..threads.system import Future, SimpleQueue
from ..types import Event, Failure, Sink, Ticket, Work

log = logging.getLogger("localai_shim")


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
    """A change of the model or of what belongs to it, between two steps. What it raises is its caller's."""

    apply: Callable[[], Iterator[None] | None]
    """Makes all of it, or returns the pieces that make it, with steps in between."""
    done: Future[None]
    _pieces: Iterator[None] | None = None

    def begin(self) -> bool:
        """Make it; True if pieces are left."""
        return self.done.set_running_or_notify_cancel() and self._runs(self._apply)

    def step(self) -> bool:
        """Make the next piece; True if pieces are left."""
        return self._runs(self._next)

    def _apply(self) -> bool:
        self._pieces = self.apply()
        return self._pieces is not None

    def _next(self) -> bool:
        assert self._pieces is not None
        return next(self._pieces, self) is None

    def _runs(self, work: Callable[[], bool]) -> bool:
        try:
            if work():
                return True
            self.done.set_result(None)
        except BaseException as error:
            self.done.set_exception(error)
        return False

    def fail(self, error: Exception) -> None:
        if self._pieces is not None or self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)


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
