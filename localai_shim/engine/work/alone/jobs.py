"""Requests that run one at a time, each a piece after the other, and what runs their pieces."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator
from typing import cast

import mlx.core as mx

from ....types import Failure, PieceRequest, Sink, Token, log
from ...pieces import Perform
from ...row import row_error
from ..lane import Parts, WaitingJobs
from .ports import PerformingModel


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


_PIECE, _DONE = Token(0), Token(0, finish_reason="stop")


class AloneRunner:
    """Runs the pieces of the requests.

    Args:
        lane: those of the engine.
        parts: what it runs on.
    """

    pieces = (Perform,)

    def __init__(self, lane: Alone, parts: Parts) -> None:
        self._lane, self._share, self._emit = lane, parts.share, parts.emit
        self._costs, self._performers = parts.setup.costs, cast(PerformingModel, parts.model).performers

    def run(self, piece: Perform) -> None:
        """Compute a piece, and emit it. An exception fails its request."""
        job = self._lane.take(piece)
        request, watch = job.request, self._costs.start()
        try:
            try:
                if job.pieces is None:
                    request.timings.begin()
                    mx.random.seed(secrets.randbits(32) if request.seed is None else request.seed)
                    job.pieces = iter(self._performers[request.task].begin(request))
                made = next(job.pieces, None)
            except BaseException as error:
                self._lane.failed(job, error)
                return
            if made is None:
                self._lane.finish(job)
                self._emit(job, _DONE)
                return
            request.pieces.append(made)
            request.timings.sample()
            job.made += 1
            self._emit(job, _PIECE)
        finally:
            self._share.note_pass(watch.seconds, beside=piece.beside)
