"""Requests that run one at a time, each a piece after the other."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ....types import Failure, PieceRequest, Sink, log
from ...pieces import Perform
from ...row import row_error
from ..lane import Parts, WaitingJobs


class AloneJob:
    """One request, and how far it is.

    Args:
        request: what is asked for.
        sink: takes its events.
        index: its place in its submission.
    """

    def __init__(self, request: PieceRequest[object], sink: Sink, index: int) -> None:
        self.request, self.sink, self.index = request, sink, index
        self.number = self.arrival = 0
        """Its name in plans, from 1: smaller for those that came earlier."""
        self.priority = request.priority
        self.pieces: Iterator[object] | None = None
        """The pieces to come; None: it has not begun."""
        self.made = 0
        """Pieces so far."""

    @property
    def length(self) -> tuple[int]:
        return (self.request.size,)


class Alone(WaitingJobs[AloneJob]):
    """Requests that run one after the other. The queue chooses which is next; one that has begun runs to its end.

    Models keep the state of what they speak on themselves, so that no two requests may run by turns.

    Args:
        parts: those of the engine.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, AloneJob, "choosing the next request")
        self._running: AloneJob | None = None

    def enter(self, work: PieceRequest[object], sink: Sink, index: int) -> AloneJob:
        """Make the job of a request."""
        return AloneJob(work, sink, index)

    def restart(self) -> None:
        """Make the request that runs begin again: the model will change. One that has pieces cannot, and fails."""
        job = self._running
        if job is not None and job.made:
            error = RuntimeError("the model's weights were updated, and a part of the result was made with others")
            self.failed(job, error)
        elif job is not None:
            job.pieces = None

    # -- the next piece -----------------------------------------------------------------------------------------

    def next_pass(self, *, beside: bool) -> Perform:
        """The next piece of the request that runs, or else the first piece of another one."""
        job = self._running or self._queue.first(AloneJob, self._queue.turn(AloneJob))
        assert job is not None
        return Perform(job.number, beside)

    # -- what came of it ----------------------------------------------------------------------------------------

    def take(self, piece: Perform) -> AloneJob:
        """The request of a piece, which waits no longer."""
        self._running = job = self._jobs[piece.request]
        self._queue.discard(job)
        return job

    def failed(self, job: AloneJob, error: BaseException) -> None:
        """A piece failed, and so does its request."""
        self.finish(job)
        self._emit(job, Failure(row_error(f"{job.request.what} failed", error)))

    def finish(self, job: AloneJob) -> None:
        """Remove a request, which may be gone."""
        super().finish(job)
        if self._running is job:
            self._running = None
        pieces, job.pieces = job.pieces, None
        if isinstance(pieces, Generator):
            try:
                pieces.close()
            except BaseException:
                log.exception("ending a request's work failed; others continue")
