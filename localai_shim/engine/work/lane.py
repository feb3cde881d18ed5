"""Lanes take work of some kinds and name the passes that it needs: their protocols, and the parts that they use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ...types import Event, Failure, Recipient, Sink, Work
from ..costs.meter import Meter
from ..pieces import Pass, Piece
from ..ports import Model
from ..row import row_error
from ..setup import Setup
from .queue import Job, Queue
from .share import Share


class Entry(Recipient, Protocol):
    """One piece of work in flight: a row, or a request for vectors."""

    @property
    def request(self) -> Work: ...


WorkT = TypeVar("WorkT", bound=Work, contravariant=True)
EntryT = TypeVar("EntryT", bound=Entry)


class Lane(Protocol[WorkT, EntryT]):
    """Takes work of some kinds on the engine's thread. An exception fails the work that a method was called with."""

    def __len__(self) -> int:
        """Entries that run and wait."""

    def enter(self, work: WorkT, sink: Sink, index: int) -> EntryT:
        """Make the entry of a piece of work; raises where that cannot be run."""

    def add(self, entries: Sequence[EntryT]) -> None:
        """Queue entries of one submission."""

    def drop(self, gone: Collection[EntryT]) -> None:
        """Drop entries, which may be waiting, running or gone; no event is sent. Raises nothing."""

    def restart(self) -> None:
        """Make all of its work begin again: the model will change."""


AnyLane: TypeAlias = Lane[Any, Any]


class PassLane(AnyLane, Protocol):
    """A lane whose work is no row: it runs in passes next to the decode steps."""

    def is_due(self, beside: bool, prompts: int | None) -> bool:
        """True if a pass comes next.

        `beside` is true while rows are running. `prompts` is the priority of the waiting prompts, or None if there are
        none.
        """

    def next_pass(self, *, beside: bool) -> Pass:
        """The next pass. `beside` is true while rows are running."""

    def fail(self, error: BaseException) -> None:
        """End all of its work with an error."""


class Runner(Protocol):
    """Runs the pieces of a lane, and decides nothing."""

    @property
    def pieces(self) -> Collection[type[Piece]]: ...

    def run(self, piece: Any) -> None:
        """Run a piece. An exception fails the work that the piece is for."""


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of an engine that its lanes and runners use.

    Args:
        model: runs the work; it is only an `Encoder` if it generates no text.
        setup: has the limits of passes, and their costs.
        meter: counters and timings.
        share: the time that passes get while rows are running.
        emit: takes an entry's event; it must not block.
        deliver: delivers events that should not wait for the end of a step.
        queue: holds the work that can begin.
    """

    model: Model
    setup: Setup
    meter: Meter
    share: Share
    emit: Callable[[Entry, Event], None]
    deliver: Callable[[], None] = _nothing
    queue: Queue = field(default_factory=Queue)


class PassJob(Entry, Job, Protocol):
    """One request of a lane of passes."""

    number: int
    """Its name in plans, from 1: smaller for those that came earlier."""


JobT = TypeVar("JobT", bound=PassJob)


class WaitingJobs(Generic[JobT]):
    """Requests of a lane of passes, by number. Those that can begin are in the queue.

    Args:
        parts: those of the engine.
        kind: class of the jobs.
        what: beginning of the message of an error that ends all of them.
    """

    def __init__(self, parts: Parts, kind: type[JobT], what: str) -> None:
        self._queue, self._emit, self._share = parts.queue, parts.emit, parts.share
        self._kind, self._what = kind, what
        self._jobs: dict[int, JobT] = {}

    def __len__(self) -> int:
        """Requests that run and wait."""
        return len(self._jobs)

    def add(self, entries: Sequence[JobT]) -> None:
        """Queue requests."""
        for job in entries:
            job.number = job.arrival = next(self._queue.arrivals)
            self._jobs[job.number] = job
            self._queue.add(job)
            self._share.note_waiting(self, True)

    def drop(self, gone: Collection[JobT]) -> None:
        """Drop requests, which may be gone; no event is sent. If that fails, all others fail."""
        try:
            for job in gone:
                self.finish(job)
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End every request with an error."""
        failure = Failure(row_error(f"{self._what} failed", error))
        self._queue.clear(self._kind)
        for job in [*self._jobs.values()]:
            self.finish(job)
            self._emit(job, failure)

    def finish(self, job: JobT) -> None:
        """Remove a request, which may be gone."""
        self._jobs.pop(job.number, None)
        self._queue.discard(job)
        if not self._jobs:
            self._share.note_waiting(self, False)

    def is_due(self, beside: bool, prompts: int | None) -> bool:
        """True if a pass comes next; see `PassLane`."""
        if not self._jobs or not self._share.is_due(beside):
            return False
        return self._queue.goes_first(min(job.priority for job in self._jobs.values()), prompts)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work, as an engine knows it. The model has a head for it, or generates text."""

    refusal: str
    """Text that follows the name of a model that does not serve it."""
    lane: Callable[[Parts], AnyLane]
    """Makes the lane that takes it. Kinds that have the same one share the lane."""
    runner: Callable[[Any, Parts], Runner]
    """Makes what runs the lane's pieces."""
