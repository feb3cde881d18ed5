"""Lanes take work of some kinds and name the passes that it needs: their protocols, and the parts that they use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ...types import Event, Failure, Recipient, Sink, Work
from ..costs.cost_model import CostModel, Meter
from ..pieces import Pass, Piece
from ..ports import Model
from ..row import row_error
from ..setup import Setup
from .queue import Job, Queue

SHARE = 1 / 8  # of the time: what the passes of all engines get while rows run, and a little more for work around them

MAX_PASS_SECONDS = 5.0  # that rows are owed for: in a longer one the process was stopped, or the clock jumped
MAX_PAUSE_SECONDS = 0.005  # after which an engine that leaves the time to others looks into its inbox

decoding: set[object] = set()
"""Engines of this process that have rows; each adds and removes itself."""
waiting: set[object] = set()
"""Those that have texts."""


class _Turns:
    """Time that a process's engines with rows leave to texts: the time of the next pass, which any engine may run."""

    resumes = 0.0
    """When the next pass may come; in the time of `CostModel.now`."""
    last: object = None
    """The engine that ran the last one: another one that has texts goes first."""


_turns = _Turns()


class Share:
    """The time of one engine's passes: an eighth while rows run, in this engine or in others of the process.

    After a pass, rows get seven times its seconds before the next one. Engines that have texts take turns.

    Args:
        engine: the one whose passes they are.
        costs: has the time.
        meter: what counts.
    """

    def __init__(self, engine: object, costs: CostModel, meter: Meter) -> None:
        self._engine, self._costs, self._meter = engine, costs, meter
        self._waiting: set[object] = set()
        """Lanes that have work."""
        self._owed = 0.0
        """Seconds that running rows get before the next pass."""

    def note_waiting(self, lane: object, waits: bool) -> None:
        """A lane has work, or none any more."""
        (self._waiting.add if waits else self._waiting.discard)(lane)
        (waiting.add if self._waiting else waiting.discard)(self._engine)

    def note_rows(self, running: bool) -> None:
        """Tell other engines if rows of this one run."""
        (decoding.add if running else decoding.discard)(self._engine)

    def note_pass(self, seconds: float, *, beside: bool) -> None:
        """Give rows their share of the time, after a pass that took these seconds."""
        now, owed = self._costs.now(), min(seconds, MAX_PASS_SECONDS) * (1 / SHARE - 1)
        # Two may have begun at once: then rows get what both have taken.
        _turns.resumes, _turns.last = max(now, _turns.resumes if decoding else 0.0) + owed, self._engine
        if beside:
            self._owed = owed
            self._meter.stalled(seconds)

    def stepped(self, seconds: float) -> None:
        """Running rows have had these seconds."""
        self._owed = max(0.0, self._owed - seconds)

    def is_due(self, beside: bool) -> bool:
        """True if a pass may come next; `beside`: rows of this engine run."""
        return not (beside and self._owed > 0) and not self.pause

    @property
    def pause(self) -> float:
        """Seconds for which rows, or the texts of others, have the time that engines share: at most
        `MAX_PAUSE_SECONDS`."""
        others = len(waiting) > (self._engine in waiting)
        if not (self.has_neighbors or (others and decoding)):
            return 0.0
        resumes = _turns.resumes + (MAX_PAUSE_SECONDS if others and _turns.last is self._engine else 0)
        return min(MAX_PAUSE_SECONDS, max(0.0, resumes - self._costs.now()))

    @property
    def has_neighbors(self) -> bool:
        """Rows of other engines run."""
        return len(decoding) > (self._engine in decoding)

    def close(self) -> None:
        """The engine has neither rows nor texts any more."""
        decoding.discard(self._engine)
        waiting.discard(self._engine)


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
