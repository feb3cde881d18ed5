"""Work in flight: what runs for each submission, and the places that it takes in the queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ...types import QueueFullError, Ticket, TooManyRowsError
from ...types.timeline import Request
from ..costs.cost_model import Meter
from .lane import Entry
from .recorder import request_of


class Tickets:
    """Entries in flight, and the submissions that they belong to.

    Args:
        most: entries that may run and wait together.
        meter: what counts.
    """

    def __init__(self, most: int, meter: Meter) -> None:
        self._most, self._meter = most, meter
        self._tickets: dict[Entry, Ticket] = {}
        self._reserved: dict[Ticket, int] = {}  # places of what was not entered yet

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._tickets)

    def __contains__(self, entry: object) -> bool:
        return entry in self._tickets

    @property
    def taken(self) -> int:
        """Places that are taken, those of requests in the inbox among them."""
        return len(self._tickets) + sum([*self._reserved.values()])

    def reserve(self, ticket: Ticket, rows: int) -> None:
        """Reserve places for a submission; called on any thread, by one at a time.

        Raises:
            QueueFullError: there are not enough.
            TooManyRowsError: nor would there be if nothing else ran.
        """
        if rows > self._most:
            raise TooManyRowsError(f"{rows} choices exceed the queue capacity of {self._most} (max_rows + max_queue)")
        taken = self.taken
        if taken + rows > self._most:
            self._meter.refused += rows
            raise QueueFullError(
                f"Queue full: {taken} of {self._most} slots in use (max_rows + max_queue). Retry later"
            )
        self._reserved[ticket] = rows

    def free(self, ticket: Ticket) -> None:
        """Free the places of a submission that is not to be entered any more; it may have none."""
        self._reserved.pop(ticket, None)

    def enter(self, ticket: Ticket, entries: Sequence[Entry]) -> None:
        """Add a submission, which has places."""
        self._tickets.update(dict.fromkeys(entries, ticket))
        self.free(ticket)

    def find(self, tickets: Collection[Ticket]) -> set[Entry]:
        """Entries in flight of some submissions."""
        return {entry for entry, ticket in self._tickets.items() if ticket in tickets} if tickets else set()

    def forget(self, entry: Entry, *, failed: bool = False) -> None:
        """Remove what has ended, and free its place; it may be gone."""
        if self._tickets.pop(entry, None) is not None:
            entry.request.timings.finish(self._meter.steps)
            outcome = "failed" if failed else entry.request.timings.finish_reason or "canceled"
            self._record(entry, outcome)

    def clear(self) -> list[Entry]:
        """Remove and return all; their places are freed, but not those of requests in the inbox."""
        entries = [*self._tickets]
        self._tickets.clear()
        for entry in entries:
            self._record(entry, "failed")
        return entries

    def running(self) -> list[Request]:
        """All of them, for a timeline; may be called on any thread."""
        return [request_of(entry, "running") for entry in [*self._tickets]]

    def _record(self, entry: Entry, outcome: str) -> None:
        for recording in self._meter.recordings:
            recording.add(request_of(entry, outcome))
