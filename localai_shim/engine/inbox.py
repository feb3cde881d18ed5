"""Messages of other threads to the engine thread, and the last events of requests that it leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
    """A change of the model or of what belongs to it, between two steps."""

    apply: Callable[[], None]
    done: Future[None]

    def run(self) -> None:
        """Apply it, and say how that went. What it raises is its caller's."""
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            self.apply()
        except BaseException as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if self.done.set_running_or_notify_cancel():
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
