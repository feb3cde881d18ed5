"""Protocols of lanes, which take work of some kinds and name the passes that it needs, and the parts they use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ...types import Event, Recipient, Sink, Work
from ..costs.meter import Meter
from ..pieces import Pass, Piece
from ..ports import Model
from ..setup import Setup
from .queue import Queue
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


class PassLane(Lane[Any, Any], Protocol):
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
    emit: Callable[[Any, Event], None]
    deliver: Callable[[], None] = _nothing
    queue: Queue = field(default_factory=Queue)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work, as an engine knows it. The model has a head for it, or generates text."""

    refusal: str
    """Text that follows the name of a model that does not serve it."""
    lane: Callable[[Parts], Lane[Any, Any]]
    """Makes the lane that takes it. Kinds that have the same one share the lane."""
    runner: Callable[[Any, Parts], Runner]
    """Makes what runs the lane's pieces."""
