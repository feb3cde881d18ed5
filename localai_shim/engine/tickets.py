"""Requests in flight: what runs for each submission, and the places that they take in the queue."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ..types import QueueFullError, Ticket, TooManyRowsError
from .meter import Meter
from .row import Row
from .texts.lane import EmbeddingJob

Entry = Row | EmbeddingJob


class Tickets:
    """Rows and texts in flight, by the submission that they belong to.

    Args:
        most: entries that may run and wait together.
        meter: what counts.
    """

    def __init__(self, most: int, meter: Meter) -> None:
        self._most, self._meter = most, meter
        self._tickets: dict[Entry, Ticket] = {}
        self._entries: dict[Ticket, set[Entry]] = {}
        self._reserved = self._freed = 0  # places; one thread at a time writes each

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._tickets)

    def __contains__(self, entry: object) -> bool:
        return entry in self._tickets

    @property
    def taken(self) -> int:
        """Places that are taken, those of requests in the inbox among them."""
        return self._reserved - self._freed

    def reserve(self, rows: int) -> None:
        """Reserve places; called on any thread, by one at a time.

        Raises:
            QueueFullError: there are not enough.
            TooManyRowsError: nor would there be if nothing else ran.
        """
        if rows > self._most:
            raise TooManyRowsError(
                f"{rows} choices are more than may run and wait together, which is {self._most} (max_rows + max_queue)"
            )
        taken = self.taken
        if taken + rows > self._most:
            self._meter.refused += rows
            raise QueueFullError(
                f"{taken} requests run or wait already, and at most {self._most} may (max_rows + max_queue): try again "
                "later"
            )
        self._reserved += rows

    def free(self, rows: int) -> None:
        """Free places of requests that were never entered."""
        self._freed += rows

    def enter(self, ticket: Ticket, entries: Sequence[Entry]) -> None:
        """Add a submission, which has places."""
        self._tickets.update(dict.fromkeys(entries, ticket))
        self._entries[ticket] = set(entries)

    def find(self, ticket: Ticket) -> list[Entry]:
        """Entries in flight of a submission."""
        return [*self._entries.get(ticket, ())]

    def forget(self, entry: Entry) -> None:
        """Remove what has ended, and free its place; it may be gone."""
        ticket = self._tickets.pop(entry, None)
        if ticket is None:
            return
        self._freed += 1
        entries = self._entries[ticket]
        entries.discard(entry)
        if not entries:
            del self._entries[ticket]
        entry.request.timings.finish(time.monotonic(), self._meter.steps)

    def clear(self) -> list[Entry]:
        """Remove and return all; their places are freed, but not those of requests in the inbox."""
        entries = [*self._tickets]
        self._freed += len(entries)
        self._tickets, self._entries = {}, {}
        return entries
